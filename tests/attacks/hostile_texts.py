"""Texts that act on what shows them, and what must not be left of them."""

from hypothesis import strategies as st

from store.visible_text import is_hidden

# A terminal's commands, a forged line, reordered and invisible letters, formulas, markup of HTML, Markdown and chats.
PIECES = (
    "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\r", "\n", "\x7f", "\x08\x08", "\u202e", "\u2066", "\u200b", "\u200d",
    "\ufeff", "\u2028", "\u2029", "\x85", "\u061c", "\u00ad", "\u3164", "\ufe0f", "\U000e0041", "\t", "=1+1", "+2",
    "-3", "@SUM(A1)", "|calc", "<img src=x onerror=alert(1)>", "</script>", "&lt;", '"', "'", "`",
    "![p](http://evil.example/p)",
    "[a](javascript:b)", "$$x$$", ":material/home:", ":streamlit:", ":red[x]", "```mermaid", "<!channel>", "<@U1>",
    "<https://evil.example|x>", "@all", "@here", "https://evil.example/x", "www.evil.example", "*b*", "_i_", "~s~",
    "gpu-001", "é", "漢", "a,b", "\\",
)  # fmt: skip


def hostile() -> st.SearchStrategy[str]:
    """Some of them, and any other text that a database keeps."""
    letters = st.characters(exclude_characters="\0", exclude_categories=("Cs",))
    return st.lists(st.sampled_from(PIECES) | st.text(letters, max_size=4), min_size=1, max_size=8).map("".join)


def hidden_in(text: str, allowed: str = "\n") -> list[str]:
    """The letters of a text that a person does not see, line breaks of our own apart."""
    return sorted({f"U+{ord(letter):04X}" for letter in text if letter not in allowed and is_hidden(letter)})
