"""Mistakes in what a user is, and in which tokens are a user's: from documents to batches."""

from tests.privacy.mutants.mutant import Mutant

_USERS = "tests/documents/test_group_by_user.py"
_TOKENIZERS = "tests/documents/test_tokenizers.py"
_ORACLE = "tests/ngrams/test_oracle.py::test_kernels_release_what_the_pseudocode_releases"
_GIANTS = (
    "tests/ngrams/test_oracle.py"
    "::test_a_giant_users_documents_do_not_depend_on_order_split_or_partition"
)

MUTANTS = [
    Mutant(
        name="users_by_half_their_hash",
        file="beam_dpne/documents/group_by_user.py",
        before="fresh[1:] = (users[1:] != users[:-1]).any(axis=1)",
        after="fresh[1:] = users[1:, 0] != users[:-1, 0]",
        matters="Two users would be merged, and each would move the other's contribution.",
        tests=(f"{_USERS}::test_users_that_share_the_first_64_bits_are_two_users",),
    ),
    Mutant(
        name="users_whose_hashes_collide_are_split",
        file="beam_dpne/documents/group_by_user.py",
        before="return np.lexsort((users[:, 1], users[:, 0])) if collision.any() else order",
        after="return order",
        matters="A user would be there twice, and contribute twice.",
        tests=(f"{_USERS}::test_users_that_share_the_first_64_bits_are_two_users",),
    ),
    Mutant(
        name="documents_instead_of_users_are_dealt_to_partitions",
        file="beam_dpne/documents/group_by_user.py",
        before="(block.users[filled, 0] % np.uint64(partitions))",
        after="(filled.astype(np.uint64) % np.uint64(partitions))",
        matters="A user would be in several batches, and contribute in each of them.",
        tests=(_ORACLE,),
    ),
    Mutant(
        name="a_user_is_in_two_batches",
        file="beam_dpne/documents/group_by_user.py",
        before="start, stop = users[0], users[-1] + 1",
        after="start, stop = max(0, users[0] - 1), users[-1] + 1",
        matters="The user in the middle would contribute twice.",
        tests=("tests/elements/test_batches.py::test_positions_are_cut_between_users",),
    ),
    Mutant(
        name="the_last_document_passes_the_token_limit",
        file="beam_dpne/documents/group_by_user.py",
        before="allowed[kept] if final else lengths[kept]",
        after="lengths[kept]",
        matters="A user would change more decisions than the numerical slack counts.",
        tests=(_GIANTS,),
    ),
    Mutant(
        name="twice_the_token_limit",
        file="beam_dpne/documents/group_by_user.py",
        before=".max(initial=0) <= max_tokens:",
        after=".max(initial=0) <= 2 * max_tokens:",
        matters="A user would change more decisions than the numerical slack counts.",
        tests=(_GIANTS,),
    ),
    Mutant(
        name="documents_are_chosen_by_their_first_token",
        file="beam_dpne/documents/group_by_user.py",
        before="codes = block.codes[block.offsets[document] : block.offsets[document + 1]]",
        after="codes = block.codes[block.offsets[document] : block.offsets[document] + 1]",
        matters="Which documents stay would depend on how the input was cut into bundles.",
        tests=(_GIANTS,),
    ),
    Mutant(
        name="apostrophes_join_the_words_of_two_documents",
        file="beam_dpne/documents/tokenizers.py",
        before="within = ~border[at] & ~border[at + size]",
        after="within = (at > 0) & (at + size < len(raw))",
        matters="One user's text would change the words of another's.",
        tests=(f"{_TOKENIZERS}::test_words_agree_with_the_definition",),
    ),
    Mutant(
        name="words_go_over_the_border_of_documents",
        file="beam_dpne/documents/tokenizers.py",
        before="    first[cuts] = True\n    last[cuts - 1] = True\n",
        after="",
        matters="The last word of one user's text would be joined with the first of another's.",
        tests=(f"{_TOKENIZERS}::test_whitespace_agrees_with_str_split",),
    ),
    Mutant(
        name="a_slice_of_texts_has_the_tokens_of_others",
        file="beam_dpne/documents/tokenizers.py",
        before="[texts.offset : texts.offset + size]",
        after="[:size]",
        matters="The tokens of one user would be counted for another.",
        tests=(f"{_TOKENIZERS}::test_slices_give_the_tokens_of_their_rows",),
    ),
    Mutant(
        name="a_tokenizer_may_return_other_rows",
        file="beam_dpne/documents/tokenizers.py",
        before="if len(result) != len(texts):",
        after="if False:",
        matters="Tokens would be counted for users who never wrote them.",
        tests=(f"{_TOKENIZERS}::test_a_wrong_result_is_an_error_without_text",),
    ),
    Mutant(
        name="numbers_of_texts_are_told",
        file="beam_dpne/documents/tokenizers.py",
        before="got another number of lists.",
        after="got {len(result)} lists for {len(texts)} texts.",
        matters="An error would tell how many texts there are.",
        tests=(f"{_TOKENIZERS}::test_an_error_about_the_number_of_lists_tells_no_number",),
    ),
    Mutant(
        name="a_tokenizers_message_is_told",
        file="beam_dpne/documents/tokenizers.py",
        before='f"tokenizer {tokenizer_name(tokenizer)} raised {type(error).__name__} "',
        after='f"tokenizer {tokenizer_name(tokenizer)} raised {error} "',
        matters="The message of a user's own tokenizer may quote a text.",
        tests=(f"{_TOKENIZERS}::test_a_tokenizer_that_raises_tells_its_type_and_no_text",),
    ),
    Mutant(
        name="a_tokenizers_error_of_our_class_is_told",
        file="beam_dpne/documents/tokenizers.py",
        before='if isinstance(error, TokenizerError) and _module_of(named).startswith("beam_dpne."):',
        after="if isinstance(error, TokenizerError):",
        matters="A user's own tokenizer may raise our class with a text in the message.",
        tests=(
            "tests/cli/test_bad_input.py::test_a_tokenizer_that_breaks_its_contract_fails_the_run",
        ),
    ),
]
