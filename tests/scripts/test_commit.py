# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commit that a build states: of a checkout, of a modified one, of no checkout."""

import os
import pathlib
import subprocess

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/cmake/WriteCommit.cmake"


def git(folder, *words):
    # Settings of whoever runs the tests must not matter, such as hooks and signatures.
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@x", *words], cwd=folder,
                          env=environment, text=True, capture_output=True, check=True).stdout.strip()


def checkout(folder):
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    (folder / "file").write_text("1")
    git(folder, "add", "file")
    git(folder, "commit", "-q", "-m", "first")
    return git(folder, "rev-parse", "HEAD")


def written(source, output):
    subprocess.run(["cmake", f"-DSOURCE={source}", f"-DOUTPUT={output}", "-P", SCRIPT], check=True)
    return output.read_text()


def test_a_checkout_states_its_commit_and_whether_files_differ_from_it(tmp_path):
    source, output = tmp_path / "source", tmp_path / "Commit.cpp"
    commit = checkout(source)
    text = written(source, output)
    assert f'"{commit}"' in text and "return false;" in text
    (source / "file").write_text("2")
    text = written(source, output)
    assert f'"{commit}"' in text and "return true;" in text


def test_a_file_that_says_the_same_is_not_written_again(tmp_path):
    source, output = tmp_path / "source", tmp_path / "Commit.cpp"
    checkout(source)
    written(source, output)
    os.utime(output, ns=(1, 1))
    written(source, output)
    assert output.stat().st_mtime_ns == 1
    git(source, "commit", "-q", "--allow-empty", "-m", "second")
    assert git(source, "rev-parse", "HEAD") in written(source, output)


def test_an_archive_inside_another_checkout_states_no_commit(tmp_path):
    commit = checkout(tmp_path)
    archive = tmp_path / "archive"
    archive.mkdir()
    text = written(archive, tmp_path / "Commit.cpp")
    assert 'return "";' in text and commit not in text and "return false;" in text
