"""What is kept between pipelines is what Beam itself would answer."""

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.transforms import userstate
from apache_beam.transforms.core import CallableWrapperDoFn

SEEN = userstate.ReadModifyWriteStateSpec("seen", VarIntCoder())
ITS_SEEN = beam.DoFn.StateParam(SEEN)


class Steps:
    """Methods that become DoFns of one type."""

    def forget(self, element):
        yield element

    def remember(self, element, seen=ITS_SEEN):
        yield element


def test_each_wrapped_method_has_its_own_states():
    for method, states in ((Steps().forget, set()), (Steps().remember, {SEEN})):
        assert userstate.get_dofn_specs(CallableWrapperDoFn(method)) == (states, set())
