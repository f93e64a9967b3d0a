"""The formats that a receiver's `format` may name: one file and one line each; `template` is made of its file."""

from collections.abc import Mapping

from schedulers.webhooks.format import Format
from schedulers.webhooks.formats.cloudevents import CLOUDEVENTS
from schedulers.webhooks.formats.dingtalk import DINGTALK
from schedulers.webhooks.formats.feishu import FEISHU
from schedulers.webhooks.formats.pagerduty import PAGERDUTY
from schedulers.webhooks.formats.slack import SLACK
from schedulers.webhooks.formats.standard import STANDARD

TEMPLATE = "template"
FORMATS: Mapping[str, Format] = {
    "standard": STANDARD,
    "cloudevents": CLOUDEVENTS,
    "pagerduty": PAGERDUTY,
    "slack": SLACK,
    "feishu": FEISHU,
    "dingtalk": DINGTALK,
}
