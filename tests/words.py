"""For `pytest.raises(..., match=...)`: the whole message, word for word."""

import re


def exactly(sentence):
    return f"^{re.escape(sentence)}$"
