//! Questions put together from a filter: conditions and their values, numbered as they come.
use tokio_postgres::types::{ToSql, Type};

use crate::value::Value;

/// Conditions that all must hold.
#[derive(Default)]
pub(crate) struct Conditions {
    text: String,
    values: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Conditions {
    /// A condition with a value on its right.
    pub(crate) fn and(&mut self, front: &str, value: impl ToSql + Sync + Send + 'static, ty: Type) {
        let place = self.add(value, ty);
        self.plain(&format!("{front} {place}"));
    }

    /// A condition without a value.
    pub(crate) fn plain(&mut self, condition: &str) {
        self.text.push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(condition);
    }

    /// A value, and how the text names it.
    pub(crate) fn add(&mut self, value: impl ToSql + Sync + Send + 'static, ty: Type) -> String {
        self.values.push((Box::new(value), ty));
        format!("${}", self.values.len())
    }

    /// The conditions, with ` WHERE ` in front if there are any.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The values, in their order.
    pub(crate) fn values(&self) -> Vec<Value<'_>> {
        self.values.iter().map(|(value, ty)| (&**value as &(dyn ToSql + Sync), ty.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_numbered_as_they_come() {
        let mut conditions = Conditions::default();
        assert_eq!(conditions.text(), "");

        conditions.and("a =", 1_i32, Type::INT4);
        conditions.plain("b IS NULL");
        let limit = conditions.add(2_i64, Type::INT8);

        assert_eq!((conditions.text(), limit.as_str()), (" WHERE a = $1 AND b IS NULL", "$2"));
        assert_eq!(conditions.values().len(), 2);
    }
}
