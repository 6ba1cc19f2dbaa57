"""Things put into one world keep their colours, names and places."""

import numpy as np
import pytest

from tests.splat.test_ply import some
from twinloop.errors import InputError
from twinloop.geometry import se3
from twinloop.splat.scene import SplatScene, joined, merge
from twinloop.splat.surfels import Surfels


def flat(count: int, degree: int) -> Surfels:
    """Random surfels."""
    g = some(count, degree)
    return Surfels(g.means, g.quaternions, g.scales[:, :2], g.opacities, g.sh)


def test_merge_places_and_names() -> None:
    """Each part is where its pose says; lower degrees are filled with zeros; parts come back."""
    cup, tin = some(30, 1), some(20, 3, seed=1)
    T = se3.exp(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    scene = merge([(cup, T, "cup"), (tin, np.eye(4), "tin")])
    assert scene.names == ("cup", "tin")
    np.testing.assert_array_equal(np.bincount(scene.label), [30, 20])
    np.testing.assert_allclose(scene.splats.means[:30], se3.apply(T, cup.means), atol=1e-6)
    assert (scene.splats.sh[:30, 4:] == 0).all()
    np.testing.assert_array_equal(scene.part("tin").sh, tin.sh)
    more = merge([(scene, T, "table"), (cup, np.eye(4), "other")])
    assert more.names == ("table/cup", "table/tin", "other")
    np.testing.assert_array_equal(np.bincount(more.label), [30, 20, 30])
    with pytest.raises(InputError, match=r"no part 'lid', expected one of \['cup', 'tin'\]"):
        scene.part("lid")


def test_surfels_join_gaussians_as_thin_ones() -> None:
    """A scene of surfels stays one; among Gaussians they become Gaussians of 0.1 um."""
    assert isinstance(merge([(flat(5, 0), np.eye(4), "a")]).splats, Surfels)
    mixed = joined([flat(5, 0), some(4, 1)])
    assert mixed.scales.shape == (9, 3)
    np.testing.assert_allclose(mixed.scales[:5, 2], 1e-7, rtol=1e-5)


@pytest.mark.parametrize("surfels", [False, True])
def test_dataset_round_trip(surfels: bool) -> None:
    """As a group of an artifact and back."""
    one = flat(6, 1) if surfels else some(6, 1)
    scene = merge([(one, np.eye(4), "cup"), (one, np.eye(4), "tin")])
    back = SplatScene.from_dataset(scene.to_dataset())
    assert back.names == scene.names
    np.testing.assert_array_equal(back.label, scene.label)
    np.testing.assert_array_equal(back.splats.scales, scene.splats.scales)


def test_what_cannot_be_merged() -> None:
    """Equal names, nothing at all, labels that point nowhere."""
    cup = some(3, 0)
    with pytest.raises(InputError, match="cup is there twice"):
        merge([(cup, np.eye(4), "cup"), (cup, np.eye(4), "cup")])
    with pytest.raises(InputError, match="no splats"):
        merge([])
    with pytest.raises(InputError, match="labels run from 0 to 1, expected 0 to 0"):
        SplatScene(cup, np.array([0, 1, 0], np.int32), ("cup",))
    with pytest.raises(InputError, match="labels have shape"):
        SplatScene(cup, np.zeros(4, np.int32), ("cup",))


@pytest.mark.parametrize("parts", [None, "cup", [1], {"cup": 0}])
def test_groups_that_name_no_parts(parts: object) -> None:
    """The attribute is not trusted to be there, nor to be what it was; labels neither."""
    group = SplatScene.of(some(4, 0)).to_dataset()
    with pytest.raises(InputError, match=r"parts is .*expected a list of names"):
        SplatScene.from_dataset(group.assign_attrs(parts=parts))
    with pytest.raises(InputError, match=r"expected a list of names"):
        SplatScene.from_dataset(group.drop_vars("label"))
    with pytest.raises(InputError, match=r"labels run from 0 to 0"):
        SplatScene.from_dataset(group.assign_attrs(parts=[]))
