"""How clients reach the API, and what they may send there."""
