"""The stubs say what the native module has, and every public thing has a text."""

import ast
import inspect
from pathlib import Path

import corrnoise
from corrnoise import _native, planning
from corrnoise.options import MechanismOptions


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


def test_options_are_the_keywords_of_a_mechanism():
    tree = ast.parse(Path(corrnoise.__file__).with_name("_native.pyi").read_text())
    mechanism = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Mechanism")
    stub = next(item for item in mechanism.body if isinstance(item, ast.FunctionDef) and item.name == "__init__").args
    new = inspect.signature(corrnoise.Mechanism).parameters
    assert [argument.arg for argument in stub.args[1:] + stub.kwonlyargs] == list(new)
    keywords = {name: value.default for name, value in new.items() if value.kind is value.KEYWORD_ONLY}
    assert [ast.literal_eval(value) for value in stub.kw_defaults] == list(keywords.values())
    assert MechanismOptions.__optional_keys__ == keywords.keys() - {"awaits_state"}
    resumed = inspect.signature(corrnoise.Mechanism.resume).parameters
    assert {name: value.default for name, value in resumed.items() if name in MechanismOptions.__optional_keys__} == {
        name: default for name, default in keywords.items() if name != "awaits_state"
    }


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
