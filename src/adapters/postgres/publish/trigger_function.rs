//! Parts of the function that the trigger of an adopted table calls. It runs with the rights of the role that adopted the table, so nothing in it
//! may call what the owner of the table can define.

/// The placeholder in a topic template for the value by which events are routed.
pub(crate) const ROUTE: &str = "${routedByValue}";

/// The statement with which the function begins, from the condition of each column that it reads. The owner of the table can give a column another
/// type with a user-defined cast to text, which runs when the column is read. Migration V16 writes the same into earlier functions.
pub(crate) fn type_check<'a>(type_has_changed: impl Iterator<Item = &'a str>) -> String {
    format!(
        "IF {} THEN RAISE EXCEPTION 'the type of a column of % has changed', TG_RELID::regclass \
         USING ERRCODE = 'datatype_mismatch', HINT = 'Run `posthaste adopt` for this table again.'; END IF",
        type_has_changed.collect::<Vec<_>>().join(" OR ")
    )
}

/// The topic of a row: the parts of the template around the routed text.
pub(crate) fn topic(template: &str, route: &str) -> String {
    let parts: Vec<String> = template.split(ROUTE).map(literal).collect();
    parts.join(&format!(" || {route} || "))
}

/// A UUID as text.
const UUID: &str = "'^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'";

/// The id of a row whose id is not a `uuid`: the UUID that it spells, or one that is derived from the table and the id.
pub(crate) fn derived_id(own_schema: &str, table: &str, text: &str) -> String {
    let text = format!("({text} COLLATE \"C\")");
    let derived = format!("{own_schema}.outbox_key_group({} || {text})", literal(&format!("{table}:")));
    format!("CASE WHEN {text} ~* {UUID} THEN {text}::uuid ELSE {derived} END")
}

/// Whether [`derived_id`] derives the id of a row.
pub(crate) fn id_is_derived(text: &str) -> String {
    format!("({text} COLLATE \"C\") !~* {UUID}")
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
    fn literal_escapes_quotes_and_backslashes() {
        assert_eq!((literal("o'r"), literal("a\\'")), ("'o''r'".into(), "E'a\\\\'''".into()));
    }
}
