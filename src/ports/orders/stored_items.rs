//! The items of an order as the SQL stores keep them: a JSON array with an array of name, quantity and price for each item.
use std::borrow::Cow;

use domain::{Item, Items, Money};

use crate::error::Error;

/// The stored text of the items.
///
/// # Errors
/// [`Error::Rejected`]: they cannot be written as JSON.
pub fn format_items(items: &Items) -> Result<String, Error> {
    let stored: Vec<(&str, u32, String)> =
        items.as_slice().iter().map(|item| (item.name(), item.quantity(), item.price().to_string())).collect();
    serde_json::to_string(&stored).map_err(|error| Error::Rejected(error.to_string()))
}

/// The items of a stored text.
///
/// # Errors
/// Why the text has no valid items.
pub fn parse_items(text: &str) -> Result<Items, String> {
    let stored: Vec<(Cow<'_, str>, u32, &str)> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let item = |(name, quantity, price): (Cow<'_, str>, u32, &str)| {
        let price = Money::parse(price).map_err(|error| error.to_string())?;
        Item::new(&name, quantity, price).map_err(|error| error.to_string())
    };
    let items = stored.into_iter().map(item).collect::<Result<Vec<_>, String>>()?;
    Items::new(items).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_survive_their_stored_form_and_invalid_ones_are_named() {
        let item = |name, price| Item::new(name, 2, Money::parse(price).expect("a price")).expect("an item");
        let items = Items::new(vec![item("tea \"green\" 🦀", "4.50"), item("cup", "0.10")]).expect("items");

        let text = format_items(&items).expect("JSON");
        assert_eq!(text, r#"[["tea \"green\" 🦀",2,"4.50"],["cup",2,"0.10"]]"#);
        assert_eq!(parse_items(&text).as_ref(), Ok(&items));

        for invalid in ["", "[]", r#"[["tea",0,"4.50"]]"#, r#"[["tea",1,"much"]]"#, r#"[["tea",1,4.5]]"#] {
            assert!(parse_items(invalid).is_err_and(|reason| !reason.is_empty()), "{invalid}");
        }
    }
}
