"""`beam-dpne plan`: a plan as a file, what an n-gram needs under it, or a forecast."""

import argparse

from beam_dpne.accounting.division import plan_of_each
from beam_dpne.cli import display, forecasting
from beam_dpne.cli.plan_checks import warn_of_large_delta
from beam_dpne.cli.privacy import plan_from_options
from beam_dpne.cli.small_files import write_text


def run_command(parsed: argparse.Namespace, _beam_arguments: list[str]) -> None:
    """Prints what an n-gram needs, or a forecast, and writes the plan to the file `output`."""
    whole = plan_from_options(parsed)
    warn_of_large_delta(whole)
    plan = whole if parsed.releases is None else plan_of_each(whole, parsed.releases)
    job = forecasting.job_from_options(parsed, whole)
    if parsed.output is not None:
        write_text(parsed.output, plan.to_json())
    if parsed.releases is not None:
        display.print_line(
            f"{parsed.releases} releases under this plan have at most ε = {whole.epsilon:g} at δ = "
            f"{whole.delta:g} together. Each may have:"
        )
    if job is None:
        forecasting.print_needs(plan)
    else:
        forecasting.run_job(job)
    display.print_budget(plan)
    if parsed.output is not None:
        display.print_notice(f"beam-dpne: the plan is in {parsed.output}.")
