"""The signature of webhooks, by the example of the specification."""

from controller.notifications import channels

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"


def test_the_example_of_standard_webhooks() -> None:
    found = channels.webhook_headers(ID, b'{"test": 2432232314}', secret=SECRET, now_s=1614265330)
    assert found == {
        "Content-Type": "application/json",
        "webhook-id": ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_without_a_secret_nothing_is_signed() -> None:
    assert "webhook-signature" not in channels.webhook_headers(ID, b"{}", secret=None, now_s=1)


def test_the_body_is_json_of_any_text() -> None:
    assert channels.webhook_body({"a": 'ü"\n'}) == '{"a":"ü\\"\\n"}'.encode()
