//! Parts of the function that the trigger of an adopted table calls. It runs with the rights of the role that adopted the table, so nothing in it
//! may call what the owner of the table can define.

/// What a topic template has in place of the value by which events are routed.
pub(crate) const ROUTE: &str = "${routedByValue}";

/// The value of a column.
pub(crate) fn value(column: &str) -> String {
    format!("NEW.{}", identifier(column))
}

/// The text of a column. For a type that is not PostgreSQL's own, `format` calls the type's output function, which only a superuser can have
/// written; `::text` would call a conversion that the type's owner has defined.
pub(crate) fn text(column: &str, built_in: bool) -> String {
    let value = value(column);
    if built_in {
        format!("{value}::text")
    } else {
        format!("CASE WHEN NOT ({value} IS NULL) THEN format('%s', {value}) END")
    }
}

/// The statement with which the function begins, from the columns of PostgreSQL's own types that it reads. The owner of the table can give such a
/// column another type, whose conversions run when the column is read; `pg_typeof` runs none. Migration V16 writes the same into earlier functions.
pub(crate) fn type_check<'a>(columns: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let changed: Vec<String> =
        columns.map(|(column, kind)| format!("pg_typeof({}) <> {}::regtype", value(column), literal(kind))).collect();
    format!(
        "IF {} THEN RAISE EXCEPTION 'the type of a column of % has changed', TG_RELID::regclass \
         USING ERRCODE = 'datatype_mismatch', HINT = 'Run `posthaste adopt` for this table again.'; END IF",
        changed.join(" OR ")
    )
}

/// The topic of a row: the parts of the template around the routed text.
pub(crate) fn topic(template: &str, route: &str) -> String {
    let parts: Vec<String> = template.split(ROUTE).map(literal).collect();
    parts.join(&format!(" || {route} || "))
}

/// The id of a row whose id is not a `uuid`: the UUID that it spells, or one that is derived from the table and the id.
pub(crate) fn derived_id(own_schema: &str, table: &str, text: &str) -> String {
    let text = format!("({text} COLLATE \"C\")");
    let derived = format!("{own_schema}.outbox_key_group({} || {text})", literal(&format!("{table}:")));
    format!(
        "CASE WHEN {text} ~* '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$' THEN {text}::uuid ELSE {derived} END"
    )
}

/// A name in quotation marks.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text of SQL, also for a server whose strings know backslashes.
pub(crate) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_is_the_template_with_the_routed_value() {
        assert_eq!(topic("outbox.event.${routedByValue}", "r"), "'outbox.event.' || r || ''");
        assert_eq!(topic("customers", "r"), "'customers'");
        assert_eq!(topic("a'b", "r"), "'a''b'");
    }

    #[test]
    fn texts_and_names_are_quoted() {
        assert_eq!((literal("o'r"), literal("a\\'")), ("'o''r'".into(), "E'a\\\\'''".into()));
        assert_eq!(identifier("we\"ird"), "\"we\"\"ird\"");
    }
}
