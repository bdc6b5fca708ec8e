//! Adopted tables with a trigger function of an earlier version that no migration has rewritten.
use postgres::{EarlierAdoption, Options, PostgresOpenError};

/// The detail of the check if there are none.
pub(super) const NONE: &str =
    "the trigger function of every adopted table checks the types of its columns, and ids that are derived";

/// A sentence with the problems of the adopted tables; `None` if there are none.
pub(super) async fn finding(options: &Options) -> Result<Option<String>, PostgresOpenError> {
    let without_type_check = postgres::tables_without_type_check(options).await?;
    let without_id_check = postgres::tables_without_id_check(options).await?;
    Ok(describe(&without_type_check, &without_id_check))
}

fn describe(without_type_check: &[EarlierAdoption], without_id_check: &[EarlierAdoption]) -> Option<String> {
    let problems = [
        ("the owner of each of these tables can run SQL as the role that adopted it", without_type_check),
        ("a row of these tables with an id that an earlier row had is not published", without_id_check),
    ];
    let described = problems.into_iter().filter(|(_, tables)| !tables.is_empty()).map(|(problem, tables)| {
        let shown: Vec<_> =
            tables.iter().map(|EarlierAdoption { table, role }| format!("{table} (adopted by {role})")).collect();
        format!("{problem}: {}", shown.join(", "))
    });
    let described = described.collect::<Vec<_>>().join("; ");
    let remedy = "run `posthaste adopt` for each table again, as that role and with the same options";
    (!described.is_empty()).then(|| format!("{described}; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_with_the_role_that_adopts_them_again() {
        let tables = |name: &str| vec![EarlierAdoption { table: name.to_owned(), role: "ann".to_owned() }];

        let both = describe(&tables("shop.a"), &tables("shop.b")).unwrap_or_default();

        assert!(
            both.contains("adopted it: shop.a (adopted by ann); a row")
                && both.contains("shop.b (adopted by ann); run"),
            "{both}"
        );
        assert_eq!(describe(&[], &[]), None);
    }
}
