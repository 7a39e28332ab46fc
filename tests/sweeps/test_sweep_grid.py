import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import SpecError
from sfumato.spec import load_spec
from sfumato.sweeps.grid import MAX_POINTS, Axis, as_yaml, grid, short_names
from sfumato.sweeps.request import SweepRequest

LINE = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1, max_size=300)


class TestOver:
    @pytest.mark.parametrize(
        ("text", "keys", "steps"),
        [
            ("a=1", ("a",), ((1,),)),
            ("a.b=1, 2.5,x", ("a.b",), ((1,), (2.5,), ("x",))),
            ("a=[0,1],[2]", ("a",), (([0, 1],), ([2],))),
            ("a={k: 1, l: 2},none", ("a",), (({"k": 1, "l": 2},), ("none",))),
            ("a=edge:3,cloud", ("a",), (("edge:3",), ("cloud",))),
            ("a,b=1:2,3:4", ("a", "b"), ((1, 2), (3, 4))),
            ("a, b=h:{k: 1},i:[1, 2]", ("a", "b"), (("h", {"k": 1}), ("i", [1, 2]))),
            ("a,b='edge:3':1", ("a", "b"), (("edge:3", 1),)),
            ('a="x,y",z', ("a",), (("x,y",), ("z",))),
            ("a=it's,b", ("a",), (("it's",), ("b",))),
            ("a=b=c", ("a",), (("b=c",),)),
        ],
    )
    def test_is_read(self, text, keys, steps):
        assert Axis.parse(text) == Axis(keys, steps)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("a", "over: a: must be KEY=A,B"),
            ("=1", "a key is missing"),
            ("a..b=1", "a key is missing"),
            ("a=", "a value is missing"),
            ("a=1,,2", "a value is missing"),
            ("a,b=1:,2:3", "a value is missing"),
            ("a,b=1,2", "over: a,b: got '1'; must have 2 values"),
            ("a,b=1:2:3", "must have 2 values"),
            ("a=1,2,1", "over: a: got '1'; is given twice"),
            ("a=[1", "that is not closed"),
            ("a='x", "that is not closed"),
            ("a=.inf", "must be finite numbers"),
            ("a={1.5: 2}", "a key must be a word"),
        ],
    )
    def test_is_refused_in_one_line(self, text, said):
        with pytest.raises(SpecError, match=said) as error:
            Axis.parse(text)
        assert "\n" not in str(error.value)

    def test_python_says_the_same(self):
        assert Axis.of("a", [1, 2]) == Axis.parse("a=1,2")
        assert Axis.of(("a", "b"), [(1, [2, 3]), (4, "x")]) == Axis.parse("a,b=1:[2,3],4:x")
        for values in (3, "12", []):
            with pytest.raises(SpecError, match="over: a"):
                Axis.of("a", values)
        for values in ([1, 2], [(1, 2, 3)]):
            with pytest.raises(SpecError, match="2 values"):
                Axis.of(("a", "b"), values)


class TestGrid:
    def test_is_the_product_with_the_last_axis_fastest(self):
        points = grid([Axis.parse("p.a=1,2"), Axis.parse("b,c=x:1,y:2")])
        assert [dict(point.values) for point in points] == [
            {"p.a": 1, "b": "x", "c": 1},
            {"p.a": 1, "b": "y", "c": 2},
            {"p.a": 2, "b": "x", "c": 1},
            {"p.a": 2, "b": "y", "c": 2},
        ]
        assert points[1].name == "a=1,b=y,c=2"
        assert points[1].overrides == ("p.a=1", 'b="y"', "c=2")

    def test_names_do_not_depend_on_the_other_points(self):
        few = {point.name for point in grid([Axis.parse("a=1,2"), Axis.parse("b=[1, 2],{k: é}")])}
        more = {point.name for point in grid([Axis.parse("a=2,3,1"), Axis.parse("b=[1, 2],x,{k: é}")])}
        assert few < more
        assert len(more) == 9

    def test_refuses_what_makes_no_grid(self):
        with pytest.raises(SpecError, match="over: needs a key"):
            grid([])
        with pytest.raises(SpecError, match="over: a: is varied twice"):
            grid([Axis.parse("a=1"), Axis.parse("b,a=1:2")])
        long = Axis.of("a", list(range(MAX_POINTS // 10 + 1)))
        with pytest.raises(SpecError, match="at most 10,000: each point is a run"):
            grid([long, Axis.of("b", list(range(10)))])

    @given(st.lists(LINE, min_size=2, max_size=6, unique=True))
    def test_any_texts_give_folders_of_their_own(self, texts):
        points = grid([Axis.of("name", texts)])
        names = [point.name for point in points]
        assert len(set(names)) == len(texts)
        for point in points:
            assert 0 < len(point.name) < 140
            assert not set(point.name) & set('/\\:*?"<>|\n\0 ')

    def test_short_names_tell_keys_apart(self):
        assert short_names(["a.b.c", "d"]) == ("c", "d")
        assert short_names(["a.b.x", "c.b.x", "x.y"]) == ("a.b.x", "c.b.x", "y")
        assert short_names(["rounds", "training.rounds"]) == ("rounds", "training.rounds")

    def test_values_are_shown_as_written(self):
        assert [as_yaml(v) for v in (1, 0.5, "x", True, None, [1, 2], {"a": 1})] == [
            "1", "0.5", "x", "true", "null", "[1, 2]", "{a: 1}",
        ]  # fmt: skip


class TestAsked:
    def test_overrides_reach_the_specs(self, tmp_path):
        axes = [
            Axis.parse("trust.trusted_edges=0,[0,2]"),
            Axis.parse("protocol,privacy.noise=h2fdp:{multiplier: 2},hfl:none"),
        ]
        asked = SweepRequest.of(
            "quickstart", axes, seeds=2, out=tmp_path, overrides=["seed=5", "training.rounds=2"]
        )
        assert [task.seed for task in asked.tasks] == [5, 6] * 4
        assert len({task.folder for task in asked.tasks}) == 8
        for task in asked.tasks:
            overrides = ["training.rounds=2", f"seed={task.seed}", *task.point.overrides]
            assert task.spec == load_spec("quickstart", overrides)

    def test_a_spec_in_python_takes_the_same(self, tmp_path):
        axes = [Axis.parse("privacy.noise.multiplier=1,2"), Axis.parse("topology.edges=2,3")]
        by_name = SweepRequest.of("quickstart", axes, out=tmp_path)
        by_spec = SweepRequest.of(load_spec("quickstart"), axes, out=tmp_path)
        assert by_name == by_spec

    def test_one_bad_point_is_blamed_on_its_key(self, tmp_path):
        asked = SweepRequest.of("quickstart", [Axis.parse("training.batch_size=4,-1,8")], out=tmp_path)
        assert [task.point.name for task in asked.tasks] == ["batch_size=4", "batch_size=8"]
        (failure,) = asked.refused
        assert failure.point == "batch_size=-1"
        assert failure.message.startswith("over: training.batch_size: got -1; must be")

    def test_only_bad_points_are_a_wrong_call(self, tmp_path):
        with pytest.raises(SpecError, match="over: nonsense: "):
            SweepRequest.of("quickstart", [Axis.parse("nonsense=1,2")], out=tmp_path)
        with pytest.raises(SpecError, match=r"^overrides: seed: "):
            SweepRequest.of(
                "quickstart", [Axis.parse("training.rounds=1,2")], out=tmp_path, overrides=["seed=-1"]
            )
        with pytest.raises(SpecError, match="seeds: "):
            SweepRequest.of("quickstart", [Axis.parse("seed=1,2")], out=tmp_path, seeds=0)
