//! The items of an order to create. All errors of the body are reported together, each with its field.
use std::borrow::Cow;

use domain::item::{ITEMS_MAX, check_name, check_quantity};
use domain::{Item, Items, ItemsError, Money, MoneyError};

use crate::error::{FIELD_ERRORS_MAX, FieldError, Problem};
use crate::orders::bodies::{CreateBody, NewItemBody};
use crate::request::json::{self, JsonMember, JsonValue};

const INVALID: &str = "the body is not a valid order";

/// The items of an order to create.
///
/// # Errors
/// 400 for malformed JSON, or with all fields that are not valid.
pub(crate) fn new_items(body: &[u8]) -> Result<Items, Problem> {
    let body: CreateBody<'_> = json::object(body)?;
    let mut errors = FieldErrors::default();
    let items = match body.items.value() {
        Some(JsonValue::Array(items)) if items.is_empty() || items.len() > ITEMS_MAX => {
            errors.add("items".to_owned(), ItemsError::Count.to_string());
            Vec::new()
        }
        Some(JsonValue::Array(items)) => {
            items.iter().enumerate().filter_map(|(index, item)| new_item(index, *item, &mut errors)).collect()
        }
        Some(_) => {
            errors.add("items".to_owned(), "must be an array");
            Vec::new()
        }
        None => {
            errors.add("items".to_owned(), "is required");
            Vec::new()
        }
    };
    errors.into_result()?;
    Items::new(items).map_err(|error| {
        let error = FieldError { field: "items".to_owned(), message: error.to_string().into() };
        Problem::fields(INVALID, vec![error])
    })
}

#[derive(Default)]
struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    fn add(&mut self, field: String, message: impl Into<Cow<'static, str>>) {
        if self.0.len() < FIELD_ERRORS_MAX {
            self.0.push(FieldError { field, message: message.into() });
        }
    }

    fn into_result(self) -> Result<(), Problem> {
        if self.0.is_empty() { Ok(()) } else { Err(Problem::fields(INVALID, self.0)) }
    }
}

fn new_item(index: usize, item: JsonMember<'_>, errors: &mut FieldErrors) -> Option<Item> {
    let Some(item) = item.object::<NewItemBody<'_>>() else {
        errors.add(format!("items[{index}]"), "must be an object");
        return None;
    };
    let mut add_error = |name: &str, message: String| errors.add(format!("items[{index}].{name}"), message);
    let name = product_name(item.product_name).map_err(|message| add_error("productName", message)).ok();
    let quantity = quantity(item.quantity).map_err(|message| add_error("quantity", message)).ok();
    let price = price(item.price).map_err(|message| add_error("price", message)).ok();
    // The domain's own checks have passed, so the constructor cannot fail.
    Item::new(&name?, quantity?, price?).ok()
}

fn product_name(member: JsonMember<'_>) -> Result<Cow<'_, str>, String> {
    match member.value() {
        Some(JsonValue::Text(name)) => check_name(&name).map_err(|error| error.to_string()).map(|()| name),
        Some(_) => Err("must be a string".to_owned()),
        None => Err("is required".to_owned()),
    }
}

fn quantity(member: JsonMember<'_>) -> Result<u32, String> {
    let text = match member.value() {
        Some(JsonValue::Number(text)) => text,
        Some(_) => return Err(ItemsError::Quantity.to_string()),
        None => return Err("is required".to_owned()),
    };
    // `1.0` and `1e2` are JSON numbers but not integers; a number beyond i128 also exceeds the limit.
    let quantity = text.parse::<i128>().map_err(|_| ItemsError::Quantity);
    quantity.and_then(check_quantity).map_err(|error| error.to_string())
}

fn price(member: JsonMember<'_>) -> Result<Money, String> {
    let money = match member.value() {
        Some(JsonValue::Text(text)) => Money::parse(&text),
        Some(JsonValue::Number(text)) => price_number(text),
        Some(_) => return Err("must be a number or a string".to_owned()),
        None => return Err("is required".to_owned()),
    };
    money.map_err(|error| error.to_string())
}

/// Unlike a price string, a JSON number may have a sign or the exponent letter `E`; minus zero is zero.
fn price_number(text: &str) -> Result<Money, MoneyError> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    if negative && mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9')) {
        return Err(MoneyError::Negative);
    }
    Money::parse(&digits.replace('E', "e"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_price(price: &str) -> Result<String, ()> {
        let body = format!("{{\"items\":[{{\"productName\":\"a\",\"quantity\":1,\"price\":{price}}}]}}");
        new_items(body.as_bytes()).map(|items| items.as_slice()[0].price().to_string()).map_err(|_| ())
    }

    #[test]
    fn prices_are_decimals_and_keep_their_scale() {
        let good = [
            ("1e2", "100"),
            ("1E+2", "100"),
            ("1.5e1", "15"),
            ("150e-2", "1.50"),
            ("-0", "0"),
            ("-0.00", "0.00"),
            ("0", "0"),
            ("12.990", "12.990"),
            ("\"12.990\"", "12.990"),
            ("\"1e2\"", "100"),
            ("\"1e-2\"", "0.01"),
            ("0.1", "0.1"),
            ("9007199254740993", "9007199254740993"),
            ("0.000000000001", "0.000000000001"),
            ("9999999999999999999999999999", "9999999999999999999999999999"),
            ("1e27", "1000000000000000000000000000"),
        ];
        for (price, plain) in good {
            assert_eq!(read_price(price).as_deref(), Ok(plain), "{price}");
        }
        let bad = [
            "-1",
            "-0.01",
            "\"-0\"",
            "\"-1\"",
            "\"+1\"",
            "\"1E2\"",
            "\" 1\"",
            "\"\"",
            "\"01\"",
            "\".5\"",
            "\"1.\"",
            "\"1e\"",
            "\"NaN\"",
            "\"0x1\"",
            "1e28",
            "1e999999999999",
            "0.0000000000001",
            "1e-13",
            "99999999999999999999999999999",
            "null",
            "true",
            "[]",
            "{}",
        ];
        for price in bad {
            assert_eq!(read_price(price), Err(()), "{price}");
        }
    }
}
