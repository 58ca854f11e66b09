"""Files stay mapped while they are used, and no more of them than allowed."""

from rocketlens import limits
from rocketlens.store.read import mapped


def test_no_more_files_are_kept_mapped_than_allowed_and_those_in_use_stay_valid(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(limits, "MAX_MAPPED_FILES", 4)
    paths = [tmp_path / str(n) for n in range(12)]
    for n, path in enumerate(paths):
        path.write_bytes(bytes([n]) * 5000)
    files = mapped.MappedFiles()
    held = [files.get(path, 5000) for path in paths]
    assert len(files._files) == 4
    assert [one.view[0] for one in held] == list(range(12))
    assert files.get(paths[-1], 5000) is held[-1]
    assert files.get(paths[-1], 4000) is not held[-1]
    files.close()
