//! Reads the body of a create: every mistake in it is found and told together, each by its field.
use std::borrow::Cow;

use domain::item::{ITEMS_MAX, check_name, check_quantity};
use domain::{Item, Items, ItemsError, Money, MoneyError};

use crate::body::object;
use crate::error::{FIELD_ERRORS_MAX, FieldError, Problem};
use crate::json::Json;

const INVALID: &str = "the body is not a valid order";

/// The lines of an order to place.
///
/// # Errors
/// Malformed JSON, or the fields that are not as they must be.
pub(crate) fn items(body: &[u8]) -> Result<Items, Problem> {
    let body = object(body)?;
    let mut mistakes = Mistakes::default();
    let lines = match body.member("items") {
        Some(Json::Array(lines)) if lines.is_empty() || lines.len() > ITEMS_MAX => {
            mistakes.add("items".to_owned(), ItemsError::Count.to_string());
            Vec::new()
        }
        Some(Json::Array(lines)) => {
            lines.iter().enumerate().filter_map(|(at, line)| read(at, line, &mut mistakes)).collect()
        }
        Some(_) => {
            mistakes.add("items".to_owned(), "must be an array");
            Vec::new()
        }
        None => {
            mistakes.add("items".to_owned(), "is required");
            Vec::new()
        }
    };
    mistakes.none()?;
    Items::new(lines).map_err(|error| {
        let error = FieldError { field: "items".to_owned(), message: error.to_string().into() };
        Problem::fields(INVALID, vec![error])
    })
}

#[derive(Default)]
struct Mistakes(Vec<FieldError>);

impl Mistakes {
    fn add(&mut self, field: String, message: impl Into<Cow<'static, str>>) {
        if self.0.len() < FIELD_ERRORS_MAX {
            self.0.push(FieldError { field, message: message.into() });
        }
    }

    fn none(self) -> Result<(), Problem> {
        if self.0.is_empty() { Ok(()) } else { Err(Problem::fields(INVALID, self.0)) }
    }
}

fn read(at: usize, line: &Json<'_>, mistakes: &mut Mistakes) -> Option<Item> {
    if !matches!(line, Json::Object(_)) {
        mistakes.add(format!("items[{at}]"), "must be an object");
        return None;
    }
    let mut part = |name: &str, message: String| mistakes.add(format!("items[{at}].{name}"), message);
    let name = name(line.member("productName")).map_err(|message| part("productName", message)).ok();
    let quantity = quantity(line.member("quantity")).map_err(|message| part("quantity", message)).ok();
    let price = price(line.member("price")).map_err(|message| part("price", message)).ok();
    // All three were judged by the domain's own rules, so it has nothing left to refuse.
    Item::new(name?, quantity?, price?).ok()
}

fn name<'a>(value: Option<&'a Json<'_>>) -> Result<&'a str, String> {
    match value {
        Some(Json::Text(name)) => check_name(name).map(|()| &**name).map_err(|error| error.to_string()),
        Some(_) => Err("must be a string".to_owned()),
        None => Err("is required".to_owned()),
    }
}

fn quantity(value: Option<&Json<'_>>) -> Result<u32, String> {
    let text = match value {
        Some(Json::Number(text)) => *text,
        Some(_) => return Err(ItemsError::Quantity.to_string()),
        None => return Err("is required".to_owned()),
    };
    // `1.0` and `1e2` are numbers, but no JSON integers; what is beyond an i128 is beyond the limit as well.
    let quantity = text.parse::<i128>().map_err(|_| ItemsError::Quantity);
    quantity.and_then(check_quantity).map_err(|error| error.to_string())
}

fn price(value: Option<&Json<'_>>) -> Result<Money, String> {
    let money = match value {
        Some(Json::Text(text)) => Money::parse(text),
        Some(Json::Number(text)) => number(text),
        Some(_) => return Err("must be a number or a string".to_owned()),
        None => return Err("is required".to_owned()),
    };
    money.map_err(|error| error.to_string())
}

/// A JSON number may also be negative, say `E`, and be minus zero, which is zero.
fn number(text: &str) -> Result<Money, MoneyError> {
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
        items(body.as_bytes()).map(|items| items.as_slice()[0].price().to_string()).map_err(|_| ())
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
