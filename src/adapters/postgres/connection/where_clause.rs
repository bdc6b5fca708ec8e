//! A WHERE clause built from a filter, with numbered parameters.
use tokio_postgres::types::{ToSql, Type};

use crate::connection::sql_value::SqlValue;

/// Conditions joined by AND, and their parameters.
#[derive(Default)]
pub(crate) struct Conditions {
    text: String,
    values: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Conditions {
    /// Adds a condition whose right side is a parameter.
    pub(crate) fn and(&mut self, left: &str, value: impl ToSql + Sync + Send + 'static, ty: Type) {
        let parameter = self.add_parameter(value, ty);
        self.and_plain(&format!("{left} {parameter}"));
    }

    /// Adds a condition without a parameter.
    pub(crate) fn and_plain(&mut self, condition: &str) {
        self.text.push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(condition);
    }

    /// Adds a parameter and returns its placeholder, such as `$3`.
    pub(crate) fn add_parameter(&mut self, value: impl ToSql + Sync + Send + 'static, ty: Type) -> String {
        self.values.push((Box::new(value), ty));
        format!("${}", self.values.len())
    }

    /// The clause with its leading ` WHERE `; empty without conditions.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The parameters in the order of their numbers.
    pub(crate) fn values(&self) -> Vec<SqlValue<'_>> {
        self.values.iter().map(|(value, ty)| (&**value as &(dyn ToSql + Sync), ty.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_in_the_order_of_addition() {
        let mut conditions = Conditions::default();
        assert_eq!(conditions.text(), "");

        conditions.and("a =", 1_i32, Type::INT4);
        conditions.and_plain("b IS NULL");
        let limit = conditions.add_parameter(2_i64, Type::INT8);

        assert_eq!((conditions.text(), limit.as_str()), (" WHERE a = $1 AND b IS NULL", "$2"));
        assert_eq!(conditions.values().len(), 2);
    }
}
