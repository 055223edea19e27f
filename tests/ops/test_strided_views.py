"""`as_strided` of a view reads the memory of its base."""

from __future__ import annotations

import pytest
import torch
from module_runner import Call, check, convert

from coreai_torch.errors import ConversionError

X = torch.arange(24.0).reshape(4, 6)

VIEWS = {
    "before it": lambda x: x[2:].as_strided((2, 2), (6, 1), 1),
    "behind it": lambda x: x[:1].as_strided((2, 2), (1, 2), 19),
    "from where it begins": lambda x: x[1, 2:].as_strided((3, 2), (6, 1)),
    "with gaps": lambda x: x[:, ::2].as_strided((3,), (5,), 2),
    "of a view of a view": lambda x: x.T[1:3].reshape(2, 4)[0:1].mT.as_strided((2,), (2,), 3),
    "of what was computed": lambda x: (x + 1)[1:].as_strided((3,), (1,), 4),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view(name):
    check(VIEWS[name], (X,))


@pytest.mark.parametrize(("offset", "where"), [(0, "begins before"), (10, "ends behind")])
def test_as_strided_outside_the_input_is_rejected(offset, where):
    memory = torch.arange(20.0)
    strided = Call(lambda x: x.as_strided((2, 2), (6, 1), offset))
    with pytest.raises(ConversionError, match=where):
        convert(strided, (memory[4:14],))
