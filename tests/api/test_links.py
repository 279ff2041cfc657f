"""A signed link is that of one file, with all parameters of its query."""

from urllib.parse import parse_qs, urlsplit

from api.auth.links import LIFETIME_S, PARAMETER, FileLinks


def test_a_link_keeps_the_parameters_that_are_empty_and_is_made_for_them() -> None:
    links = FileLinks("secret", clock=lambda: 100.0)
    made, ends = links.make("a session", "/v1/files?path=&attempt=1")
    query = urlsplit(made).query
    sent = parse_qs(query, keep_blank_values=True)
    assert (sent["path"], sent["attempt"], ends) == ([""], ["1"], 100 + LIFETIME_S)
    assert links.session_of(sent[PARAMETER][0], path="/v1/files", query=query) == "a session"
    other = query.replace("path=&", "")
    assert links.session_of(sent[PARAMETER][0], path="/v1/files", query=other) is None
