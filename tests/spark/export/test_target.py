"""The URL of an export's target is parsed, and must not contain secrets."""

from __future__ import annotations

import pickle

import pytest

from rmqcli.errors import TextError
from rmqcli.spark.export.target import Target, is_target, parse_target
from tests.kit.rows import each_row


@pytest.mark.parametrize(
    ("text", "root", "inner", "options"),
    [
        ("s3://b/a/c", "s3://b/a/c", "b/a/c/x", {}),
        ("s3a://b/a/", "s3://b/a", "b/a/x", {}),
        ("S3://b", "s3://b", "b/x", {}),
        ("s3://b/a%20c", "s3://b/a c", "b/a c/x", {}),
        (
            "s3://b/a?endpoint_override=h:9000&scheme=http&region=eu-west-1",
            "s3://b/a",
            "b/a/x",
            {"endpoint_override": "h:9000", "scheme": "http", "region": "eu-west-1"},
        ),
        ("gs://b/a?anonymous=true", "gs://b/a", "b/a/x", {"anonymous": "true"}),
        ("hdfs://h:8020/a/c", "hdfs://h:8020/a/c", "/a/c/x", {}),
        ("hdfs://me@h:8020/a", "hdfs://h:8020/a", "/a/x", {"user": "me"}),
        ("hdfs:///a", "hdfs:///a", "/a/x", {}),
    ],
)
def test_a_url_is_parsed_into_folder_and_options(text, root, inner, options):
    target = parse_target(text)
    assert is_target(text)
    assert target.root == root
    assert target.inner(f"{root}/x") == inner
    assert dict(target.options) == options
    assert pickle.loads(pickle.dumps(target)) == target


@pytest.mark.parametrize(
    "text", ["/a", "./s3:/b", "file:///a", "abfs://c/a", "c:x", ""]
)
def test_other_texts_are_not_targets(text):
    assert not is_target(text)


@each_row(
    ("text", "words"),
    [
        ("s3:///a", "the bucket is missing"),
        ("s3:/b/a", "two slashes are missing"),
        ("hdfs:/a", "two slashes are missing"),
        ("s3://b//a", "not a path of a storage"),
        ("s3://b/a/../c", "not a path of a storage"),
        ("s3://b/a%0Ac", "not a path of a storage"),
        ("s3://b/a#c", "not a path of a storage"),
        ("s3://b/a?endpoint=h", "s3:// has no option endpoint"),
        ("s3://b/a?user=me", "s3:// has no option user"),
        ("s3://b/a?scheme=ftp", "scheme cannot be 'ftp'"),
        ("gs://b/a?anonymous=yes", "anonymous cannot be 'yes'"),
        ("hdfs://h/a?replication=0", "replication cannot be '0'"),
    ],
)
def test_an_error_says_what_is_wrong_with_a_url(text, words):
    with pytest.raises(TextError, match=words.replace("?", r"\?")) as raised:
        parse_target(text)
    assert 0 <= raised.value.start < raised.value.end <= len(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [("s3a:/b/a", "write s3://BUCKET/PATH"), ("hdfs:/a", "write hdfs:///PATH")],
)
def test_a_url_without_two_slashes_is_shown_with_them(text, hint):
    with pytest.raises(TextError) as raised:
        parse_target(text)
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIA:hidden@b/a",
        "s3://AKIA:hid/den@b/a",
        "s3://hidden@b/a",
        "s3://b/a?region=x&secret_key=hidden",
        "s3://b/a?access_key=hidden&region=x",
        "s3://b/a?session_token=hidden",
        "gs://b/a?access_token=hidden",
        "hdfs://me:hidden@h/a",
    ],
)
def test_keys_and_passwords_in_a_url_are_refused_and_not_shown(text):
    with pytest.raises(TextError, match="must not contain keys or passwords") as raised:
        parse_target(text)
    assert "hidden" not in f"{raised.value} {raised.value.text} {raised.value.hint}"
    assert "den@" not in str(raised.value)


@pytest.mark.parametrize(
    ("query", "environ", "options"),
    [
        ("", {}, {}),
        ("", {"AWS_REGION": "eu-west-1"}, {"region": "eu-west-1"}),
        ("", {"AWS_DEFAULT_REGION": "eu-west-1"}, {"region": "eu-west-1"}),
        (
            "",
            {"AWS_ENDPOINT_URL": "http://h:9000/"},
            {"endpoint_override": "h:9000", "scheme": "http", "region": "us-east-1"},
        ),
        (
            "",
            {"AWS_ENDPOINT_URL": "http://other", "AWS_ENDPOINT_URL_S3": "https://h"},
            {"endpoint_override": "h", "scheme": "https", "region": "us-east-1"},
        ),
        (
            "?endpoint_override=i:1&region=r",
            {"AWS_ENDPOINT_URL": "http://h:9000", "AWS_REGION": "eu-west-1"},
            {"endpoint_override": "i:1", "region": "r"},
        ),
    ],
)
def test_the_environment_adds_options_that_the_url_lacks(query, environ, options):
    target = parse_target(f"s3://b/a{query}").with_environment(environ)
    assert dict(target.options) == options


def test_aws_variables_apply_only_to_s3():
    target = Target(scheme="gs", authority="b", path="a")
    environ = {"AWS_ENDPOINT_URL": "http://h", "AWS_REGION": "r"}
    assert target.with_environment(environ) == target
