"""Mistakes at the edges: run keys, files beside the release, ledgers, and what the operator sees."""

from tests.privacy.mutants.mutant import Mutant

_KEYS = "tests/ngrams/test_run_keys.py"
_KEY_FILE = "tests/storage/test_run_files.py"
_STORED = "tests/elements/test_side_inputs.py"
_LEDGER = "tests/release/test_ledger.py"
_RESULT = "tests/release/test_result.py"
_PARAMETERS = "tests/ngrams/test_mechanism_parameters.py"

MUTANTS = [
    Mutant(
        name="key_of_ngrams_without_the_vocabulary",
        file="beam_dpne/ngrams/transform.py",
        before='public = "" if vocabulary is None else vocabulary_digest(vocabulary)',
        after='public = ""',
        matters="One key under two vocabularies would draw one noise for other n-grams.",
        tests=(f"{_KEYS}::test_one_key_under_another_public_vocabulary_draws_other_noise",),
    ),
    Mutant(
        name="keys_without_the_mechanism_version",
        file="beam_dpne/documents/key_context.py",
        before='        "mechanism_version": MECHANISM_VERSION,\n',
        after="",
        matters="Two versions of the mechanism would share their noise.",
        tests=("tests/documents/test_key_context.py::test_every_part_changes_the_context",),
    ),
    Mutant(
        name="keys_without_the_program",
        file="beam_dpne/documents/key_context.py",
        before='        "program": program,\n',
        after="",
        matters="Two programs would share their noise.",
        tests=(
            "tests/documents/test_key_context.py::"
            "test_the_context_names_version_constants_records_and_tokenizer",
        ),
    ),
    Mutant(
        name="keys_without_the_parameters",
        file="beam_dpne/documents/key_context.py",
        before='        "parameters": plan.mechanism_parameters(),\n',
        after="",
        matters="One key under two budgets would give exact weights by subtraction.",
        tests=(
            "tests/documents/test_key_context.py::"
            "test_the_context_names_version_constants_records_and_tokenizer",
        ),
    ),
    Mutant(
        name="keys_of_set_unions_without_the_constants_of_thresholds",
        file="beam_dpne/set_union/plan.py",
        before='                "thresholds": thresholds.constants(),\n',
        after="",
        matters="Two versions of the thresholds would share their noise.",
        tests=(
            f"{_PARAMETERS}::test_each_constant_is_in_the_parameters_of_each_plan_that_it_decides",
        ),
    ),
    Mutant(
        name="keys_without_the_tokenizer",
        file="beam_dpne/documents/key_context.py",
        before='        "tokenizer": tokenizer_identity(tokenizer),\n',
        after="",
        matters="One key under two tokenizers would give exact weights by subtraction.",
        tests=("tests/documents/test_key_context.py::test_every_part_changes_the_context",),
    ),
    Mutant(
        name="keys_without_the_records",
        file="beam_dpne/documents/key_context.py",
        before='        "records": (described or fields).to_dict(),\n',
        after="",
        matters="One key under two ways of reading would give exact weights by subtraction.",
        tests=("tests/documents/test_key_context.py::test_every_part_changes_the_context",),
    ),
    Mutant(
        name="keys_without_the_fields_of_rows",
        file="beam_dpne/documents/key_context.py",
        before='        "rows": fields.to_dict(),\n',
        after="",
        matters="One key for two fields of a pipeline would give exact weights by subtraction.",
        tests=(
            "tests/documents/test_key_context.py::test_the_fields_of_rows_count_beside_a_description",
        ),
    ),
    Mutant(
        name="tuples_by_position_where_the_type_has_fields",
        file="beam_dpne/documents/batch.py",
        before="    elif type(element) is tuple and not by_position:\n",
        after="    elif False:\n",
        matters="A tuple in the order of a row type would make the text the user.",
        tests=(
            "tests/documents/test_documents.py::"
            "test_a_plain_tuple_is_not_read_by_position_where_the_type_has_fields",
        ),
    ),
    Mutant(
        name="a_users_first_bytes_name_the_encoding",
        file="beam_dpne/reading/headers.py",
        before="marks=has_head)",
        after="marks=True)",
        matters="One user's line would decide how the lines of all others are read.",
        tests=(
            "tests/reading/test_formats.py::"
            "test_one_users_first_line_does_not_decide_how_the_others_are_read",
        ),
    ),
    Mutant(
        name="a_users_first_line_begins_an_array",
        file="beam_dpne/reading/headers.py",
        before='array_start(head) if kind == "json" else 0',
        after="array_start(head)",
        matters="One user's line would decide how the lines of all others are read.",
        tests=(
            "tests/reading/test_formats.py::"
            "test_one_users_first_line_does_not_decide_how_the_others_are_read",
        ),
    ),
    Mutant(
        name="keys_with_tokenizers_that_nobody_knows",
        file="beam_dpne/documents/key_context.py",
        before="    if not at_top or function.__closure__ or _custom_version(tokenizer) == _UNKNOWN:\n",
        after="    if False:\n",
        matters="Two tokenizers of one name under one key would give exact weights by subtraction.",
        tests=(
            "tests/documents/test_key_context.py::"
            "test_a_given_key_needs_a_tokenizer_whose_identity_says_what_it_does",
        ),
    ),
    Mutant(
        name="keys_without_the_public_data",
        file="beam_dpne/documents/key_context.py",
        before='        "public": public,\n',
        after="",
        matters="One key under two vocabularies would draw one noise for other n-grams.",
        tests=("tests/documents/test_key_context.py::test_every_part_changes_the_context",),
    ),
    Mutant(
        name="keys_know_a_tokenizer_by_its_name_alone",
        file="beam_dpne/documents/key_context.py",
        before="return hashlib.sha256(source.encode()).hexdigest()",
        after='return "unknown"',
        matters="One key under two versions of a tokenizer would give exact weights by subtraction.",
        tests=(
            "tests/documents/test_key_context.py::"
            "test_a_tokenizer_of_the_users_own_is_known_by_its_source_or_its_version",
        ),
    ),
    Mutant(
        name="key_of_probabilities_without_the_public_counts",
        file="beam_dpne/bayesian/transform.py",
        before="digest = public.fingerprint()",
        after='digest = ""',
        matters="Noise is keyed by the row, which then stands for another n-gram.",
        tests=(
            "tests/bayesian/test_transform.py::test_a_run_key_is_bound_to_plan_tokenizer_and_public_counts",
        ),
    ),
    Mutant(
        name="vocabularies_of_one_text_have_one_digest",
        file="beam_dpne/ngrams/vocabulary.py",
        before='len(word).to_bytes(8, "little") + word for word',
        after="word for word",
        matters="Vocabularies with other words of the same letters would share a key.",
        tests=(
            f"{_KEYS}::test_vocabularies_with_other_words_of_the_same_letters_have_other_digests",
        ),
    ),
    Mutant(
        name="a_worker_takes_any_key",
        file="beam_dpne/storage/run_files.py",
        before="if fingerprint is not None and _fingerprint(key) != fingerprint:",
        after="if False:",
        matters="Noise of two keys in one release would void the guarantee.",
        tests=(f"{_KEY_FILE}::test_another_key_in_the_file_is_refused_by_workers",),
    ),
    Mutant(
        name="a_key_in_a_file_is_not_bound",
        file="beam_dpne/storage/run_files.py",
        before="key = key.bound_to(context)",
        after="key = key",
        matters="One key file under two plans would draw one noise.",
        tests=(f"{_KEY_FILE}::test_it_is_the_key_of_the_file",),
    ),
    Mutant(
        name="the_job_graph_holds_the_key",
        file="beam_dpne/storage/run_files.py",
        before="return RunKeyFile, (self._path, self._fingerprint, self._contexts)",
        after="return RunKey, (self._key(),)",
        matters="Whoever sees the job's graph could subtract the noise.",
        tests=(f"{_KEY_FILE}::test_no_secret_is_pickled",),
    ),
    Mutant(
        name="a_refused_key_is_quoted",
        file="beam_dpne/mechanism/randomness.py",
        before="got {len(digits)} characters.",
        after="got {digits}.",
        matters="A key with one wrong digit would be shown in the error.",
        tests=(
            "tests/mechanism/test_randomness.py::test_a_malformed_key_is_refused_without_echoing_it",
        ),
    ),
    Mutant(
        name="names_of_private_files_are_not_keyed",
        file="beam_dpne/elements/side_inputs.py",
        before="hashlib.blake2b(digest.encode(), key=key, digest_size=8)",
        after="hashlib.blake2b(digest.encode(), digest_size=8)",
        matters="A file's name would confirm a guess of a private set.",
        tests=(f"{_STORED}::test_the_name_of_a_private_set_s_file_is_made_with_a_secret",),
    ),
    Mutant(
        name="stored_sets_are_not_checked",
        file="beam_dpne/elements/side_inputs.py",
        before="hashlib.sha256(buffer).hexdigest() != file.sha256",
        after="False",
        matters="With a damaged set users would spend on, and shards decide, other n-grams.",
        tests=(f"{_STORED}::test_a_damaged_file_is_refused",),
    ),
    Mutant(
        name="a_ledger_may_list_any_path",
        file="beam_dpne/release/files.py",
        before='bool(PART_NAME.fullmatch(str(part.get("name"))))',
        after='bool(part.get("name"))',
        matters="Overwriting a release would delete files outside of its directory.",
        tests=(f"{_LEDGER}::test_listed_parts_of_anything_are_names_of_parts_only",),
    ),
    Mutant(
        name="a_library_s_message_is_told",
        file="beam_dpne/storage/directories.py",
        before="    return type(error).__name__\n",
        after="    return str(error)\n",
        matters="The message of a library may quote the data.",
        tests=("tests/release/test_publishing.py::test_a_part_that_does_not_parse_is_not_quoted",),
    ),
    Mutant(
        name="rows_that_the_ledger_does_not_describe_are_written",
        file="beam_dpne/release/publishing.py",
        before='if rows_section(program, table) != ledger["rows"]:',
        after="if False:",
        matters="Rows that no mechanism has made would be published under a guarantee.",
        tests=(f"{_RESULT}::test_other_rows_than_the_ledger_describes_are_refused",),
    ),
    Mutant(
        name="fields_that_are_not_released_are_passed_over",
        file="beam_dpne/release/publishing.py",
        before="if set(values) != set(names):",
        after="if not set(values) >= set(names):",
        matters="Rows with a field of private data would look like those of a release.",
        tests=(f"{_RESULT}::test_other_rows_than_the_ledger_describes_are_refused",),
    ),
    Mutant(
        name="a_given_run_key_counts_as_fresh",
        file="beam_dpne/release/ledger.py",
        before="run_key_given=transform.run_key is not None,",
        after="run_key_given=False,",
        matters="The ledger would say that no other release can have the same noise.",
        tests=(f"{_RESULT}::test_the_public_facts_of_a_run_are_those_of_the_transform",),
    ),
    Mutant(
        name="reports_of_another_run_are_published",
        file="beam_dpne/ngrams/ledger.py",
        before="if not math.isclose(noise_stddev, report.noise_stddev, rel_tol=1e-12):",
        after="if False:",
        matters="The ledger would claim another run's guarantee.",
        tests=(f"{_LEDGER}::test_reports_of_another_run_are_refused",),
    ),
    Mutant(
        name="words_below_the_threshold_are_published",
        file="beam_dpne/ngrams/ledger.py",
        before="if lowest is not None and (used is None or used < lowest):",
        after="if False:",
        matters="Words of one user would be released more often than the ledger's delta allows.",
        tests=(f"{_LEDGER}::test_words_released_below_the_threshold_of_the_plan_are_refused",),
    ),
    Mutant(
        name="items_of_another_run_are_published",
        file="beam_dpne/set_union/ledger.py",
        before="if not math.isclose(wanted[name], items.report.get(name, 0), rel_tol=1e-12):",
        after="if False:",
        matters="The ledger would claim another run's guarantee.",
        tests=(f"{_LEDGER}::test_items_of_another_plan_are_refused",),
    ),
    Mutant(
        name="lines_of_two_files_are_one_user",
        file="beam_dpne/reading/delimited.py",
        before="pairs[:, 0] = number",
        after="pairs[:, 0] = 0",
        matters="Two users would be merged, and each would move the other's contribution.",
        tests=(
            "tests/reading/test_transform.py::test_a_sequence_is_named_by_file_place_and_offset",
        ),
    ),
    Mutant(
        name="one_line_announces_a_header",
        file="beam_dpne/reading/delimited.py",
        before="if not head.startswith(HEADER_START):",
        after="if HEADER_START not in head and b'% Sequences:' not in head:",
        matters="One user's line would turn the lines of other users into a header.",
        tests=(f"{_KEYS}::test_no_line_of_a_sequences_file_makes_other_users_a_header",),
    ),
    Mutant(
        name="rejects_quote_a_record",
        file="beam_dpne/reading/json_records.py",
        before="            return NOT_JSON\n",
        after='            return f"{NOT_JSON}: {line[:40]!r}"\n',
        matters="The list of rejected records would hold users' texts.",
        tests=("tests/reading/test_transform.py::test_malformed_records_are_rejects_without_text",),
    ),
    Mutant(
        name="rejects_go_into_the_release",
        file="beam_dpne/cli/failures.py",
        before="    if output and is_inside(path, output):\n",
        after="    if False:\n",
        matters="Positions of rejected records, as private as the data, would be published.",
        tests=("tests/cli/test_ngrams.py::test_rejects_never_go_into_the_release",),
    ),
    Mutant(
        name="any_first_line_is_shown_as_fields",
        file="beam_dpne/reading/headers.py",
        before='return bool(wanted & set(names)) or wanted != {"user", "text"}',
        after="return True",
        matters="Without a header line the first record would be quoted in an error.",
        tests=(
            "tests/cli/test_bad_input.py::"
            "test_data_that_looks_like_names_is_not_shown_where_no_field_is_known",
        ),
    ),
    Mutant(
        name="a_first_line_with_one_word_is_shown_as_fields",
        file="beam_dpne/reading/headers.py",
        before="not all(_IDENTIFIER.fullmatch(name) for name in names)",
        after="not any(_IDENTIFIER.fullmatch(name) for name in names)",
        matters="Without a header line the first record would be quoted in an error.",
        tests=("tests/reading/test_transform.py::test_what_may_be_data_is_not_named",),
    ),
    Mutant(
        name="a_key_that_resembles_a_field_is_quoted",
        file="beam_dpne/documents/batch.py",
        before="cutoff=_SURELY_NEAR",
        after="cutoff=_NEAR",
        matters="A key of a dict, which may be a user's name, would be quoted in an error.",
        tests=(
            "tests/documents/test_documents.py::"
            "test_a_dict_with_a_name_that_resembles_a_field_does_not_have_it_quoted",
        ),
    ),
    Mutant(
        name="messages_of_libraries_are_told",
        file="beam_dpne/cli/main.py",
        before="elif _is_about_parameters(error):",
        after="elif isinstance(error, Exception):",
        matters="The message of a library may quote the data.",
        tests=("tests/cli/test_ngrams.py::test_the_message_of_an_unexpected_error_is_withheld",),
    ),
    Mutant(
        name="messages_of_libraries_are_told_after_the_data_were_read",
        file="beam_dpne/cli/main.py",
        before="return kind in (ValueError, FileNotFoundError) and not progress.snapshot().stage",
        after="return isinstance(error, (ValueError, FileNotFoundError))",
        matters="The message of a library may quote the data.",
        tests=(
            "tests/cli/test_failures.py::test_a_message_is_printed_if_it_cannot_quote_the_data",
        ),
    ),
    Mutant(
        name="messages_of_a_run_are_told",
        file="beam_dpne/cli/failures.py",
        before='return f"{name}; its message is withheld, since it may quote the data."',
        after='return f"{name}: {message}"',
        matters="The message of an engine may quote the data.",
        tests=(
            "tests/cli/test_failures.py::test_of_an_engines_error_nothing_that_may_be_data_is_told",
        ),
    ),
    Mutant(
        name="any_class_s_message_is_told",
        file="beam_dpne/cli/failures.py",
        before="    if may_be_printed(name):\n",
        after='    if "." in name:\n',
        matters="The message of a class that is not ours may quote the data.",
        tests=(
            "tests/cli/test_failures.py::test_of_an_engines_error_nothing_that_may_be_data_is_told",
        ),
    ),
    Mutant(
        name="libraries_log",
        file="beam_dpne/cli/main.py",
        before="logging.getLogger().setLevel(logging.CRITICAL + 1)",
        after="logging.getLogger().setLevel(logging.WARNING)",
        matters="Beam logs the error of a bundle with what it was given.",
        tests=("tests/cli/test_bad_input.py::test_a_process_that_fails_says_nothing_of_the_data",),
    ),
]
