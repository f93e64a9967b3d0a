"""The predictor says the same of the same fleet on either database."""

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from fleet_store import day, fill
from newest_scores import latest_scores

from predictor.dataset.dataset import build
from predictor.history.store_reader import data_span
from predictor.live.scoring import score_nodes
from predictor.live.training import train

pytestmark = pytest.mark.integration


def test_features_models_and_scores_are_the_same(engine: sa.Engine, postgres_engine: sa.Engine) -> None:
    """To the last bit: times are computed by the database on each."""
    spans, frames, names, scores = [], [], [], []
    for each in (engine, postgres_engine):
        fill(each, nodes=32)
        with each.connect() as connection:
            spans.append(data_span(connection))
            frames.append(build(connection, [day(20.3), day(45)]))
        names.append(train(each))
        scores.append(score_nodes(each, day(59)))
        with each.connect() as connection:
            saved = latest_scores(connection)
        assert {s.node: s.score for s in scores[-1] if s.horizon_h == 24} == {n: b[24].score for n, b in saved.items()}
    assert spans[0] == spans[1]
    pd.testing.assert_frame_equal(frames[0], frames[1])
    assert names[0] == names[1]
    np.testing.assert_array_equal([s.score for s in scores[0]], [s.score for s in scores[1]])
    assert [s.reasons for s in scores[0]] == [s.reasons for s in scores[1]]
