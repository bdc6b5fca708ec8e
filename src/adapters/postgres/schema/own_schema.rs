//! The schema that has the tables. It need not be the first of the search path: a role that has the name of another schema, such as the
//! schema `posthaste` with the functions of writers, finds that one first.

/// The statement that puts the schema of `table` first in the search path of the transaction, so that new tables are created there. It
/// changes nothing while the table does not exist.
pub(crate) fn prepend_to_search_path(table: &str) -> String {
    format!(
        "SELECT set_config('search_path', quote_ident(n.nspname) || ', ' || current_setting('search_path'), true)
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('{table}')"
    )
}
