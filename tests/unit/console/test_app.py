"""Health, metrics and static files; a mistake of the program tells nobody what it was about."""

import pytest

from tests.support.console_client import answer, answers, store_at
from tests.support.made_stores import Sent, make_store


@pytest.fixture
def store(tmp_path):
    return store_at(make_store(tmp_path / "store", [Sent(keys="k")]).path, "s")


def test_it_is_alive_and_ready(store):
    assert [each.text for each in answers(["/livez", "/readyz"], store)] == ["ok\n", "ok\n"]


def test_metrics_count_requests_by_route_and_searches_by_result(store):
    paths = ["/search?q=k", "/api/search?q=k", "/m/s/Orders/-/0/0", "/nonsense", "/metrics"]
    *_, metrics = answers(paths, store)
    assert metrics.headers["content-type"].startswith("text/plain")
    text = metrics.text
    assert 'rocketlens_console_searches_total{result="complete"} 2.0' in text
    assert 'rocketlens_console_requests_total{route="/api/search",status="200"} 1.0' in text
    assert 'rocketlens_console_requests_total{route="other",status="404"} 1.0' in text
    assert "Orders" not in text
    assert "rocketlens_console_sources 1.0" in text


def test_static_files_are_ours_only(store):
    found = answers(
        ["/static/console.js", "/static/../app.py", "/static/%2e%2e/app.py", "/static/nope"], store
    )
    assert [each.status_code for each in found] == [200, 404, 404, 404]
    assert found[0].headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("path", ["/api/search?q=k", "/search?q=k"])
def test_a_mistake_of_the_program_is_an_answer_without_its_details(store, path, monkeypatch):
    def fail(*_, **__):
        raise KeyError("secret")

    monkeypatch.setattr("rocketlens.console.search.search.row_of", fail)
    found = answer(path, store)
    assert found.status_code == 500
    assert "secret" not in found.text
    assert "KeyError" in found.text
    assert found.headers["x-content-type-options"] == "nosniff"


def test_methods_that_change_something_are_refused(store):
    found = answer("/search?q=k", store)
    assert found.status_code == 200
    assert "POST" not in found.headers.get("allow", "")
