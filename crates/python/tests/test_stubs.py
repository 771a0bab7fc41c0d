"""The stubs say what the native module has, and every public thing has a text."""

import ast
import inspect
from pathlib import Path

import corrnoise
from corrnoise import _native, planning


def test_stubs_name_what_there_is():
    package = Path(corrnoise.__file__).parent
    assert (package / "py.typed").exists()
    tree = ast.parse((package / "_native.pyi").read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    assert set(classes) == {name for name, value in vars(_native).items() if isinstance(value, type)}
    for name, node in classes.items():
        stubbed = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        real = {item for item in vars(getattr(_native, name)) if not item.startswith("_")}
        assert {item for item in stubbed if not item.startswith("_")} == real, name


def test_keywords_are_the_same_everywhere():
    package = Path(corrnoise.__file__).parent
    tree = ast.parse((package / "_native.pyi").read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(functions) == {name for name, value in vars(_native).items() if inspect.isbuiltin(value)}
    stub = functions["recommend"].args
    real = inspect.signature(corrnoise.recommend).parameters
    assert [argument.arg for argument in stub.args + stub.kwonlyargs] == list(real)
    defaults = [ast.literal_eval(value) for value in stub.defaults + stub.kw_defaults]
    assert defaults == [parameter.default for parameter in real.values()]
    assert list(planning.PlanOptions.__annotations__) == list(real)[1:]
    assert inspect.signature(corrnoise.plan).parameters == real


def test_everything_has_a_text():
    for name in corrnoise.__all__:
        value = getattr(corrnoise, name)
        assert not callable(value) or value.__doc__, name
        if isinstance(value, type):
            assert value.__doc__, name
            for item, member in vars(value).items():
                if not item.startswith("_"):
                    assert getattr(member, "__doc__", None), f"{name}.{item}"


def test_versions():
    assert corrnoise.NOISE_SPEC_VERSION == 2
    assert corrnoise.__version__.count(".") == 2
