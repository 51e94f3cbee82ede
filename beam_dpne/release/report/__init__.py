"""Reports of a release for its readers, made from its ledger and rows alone."""

# What an operator leaves out of a report, by name. It changes no guarantee, since the ledger states all
# of this. What states the guarantee and its limits cannot be left out.
PARTS = {
    "title": "The title that the operator gave the release.",
    "contact": "The operator's address for questions.",
    "unit": "The operator's noun for one user.",
    "fields": "The names of the input's fields, and its format.",
    "tokenizer": "The name of the tokenizer.",
    "versions": "The versions of the packages other than beam_dpne.",
    "operator": "The words for the operator.",
    "top": "The tables of the top rows.",
    "search": "The search box, with the rows that it holds.",
    "parameters": "The section on parameters.",
}
# What --public leaves out, unless the operator names other parts.
PUBLIC = ("title", "contact", "fields", "tokenizer", "versions", "operator")
