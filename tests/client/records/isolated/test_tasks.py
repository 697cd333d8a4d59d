"""Every task that a request can name is a function of the reader process."""

from __future__ import annotations

import pickle
from functools import partial
from inspect import getmembers, isfunction, signature

from eigenveil_client.records.isolated import tasks
from eigenveil_client.records.isolated.requests import ReaderTask


def test_the_named_tasks_are_the_functions_of_the_module() -> None:
    made_here = {
        name
        for name, one in getmembers(tasks, isfunction)
        if one.__module__ == tasks.__name__ and not name.startswith("_")
    }
    assert {task.value for task in ReaderTask} == made_here
    for name in made_here:
        assert list(signature(getattr(tasks, name)).parameters)[:3] == ["config", "item", "sink"]


def test_a_request_names_its_task_and_holds_none_of_its_code() -> None:
    sent = pickle.dumps(partial(ReaderTask.CHECK_SOURCE, rules=()))
    assert tasks.__name__.encode() not in sent
    assert pickle.loads(sent).func is ReaderTask.CHECK_SOURCE
