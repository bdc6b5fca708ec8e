//! Money as exact decimals. A price keeps the scale of its text; nothing is rounded or converted through a float.
use std::fmt;

use rust_decimal::Decimal;

/// Limit of significant digits, counted in plain notation. A 96-bit mantissa holds 28 digits without loss.
pub const DIGITS_MAX: u32 = 28;
/// Limit of digits after the decimal point.
pub const SCALE_MAX: u32 = 12;

/// An amount that is zero or more, with at most [`DIGITS_MAX`] digits and [`SCALE_MAX`] of them after the point.
#[derive(Clone, Copy, Debug)]
pub struct Money(Decimal);

/// Why a text is not an amount. Clients see the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// The text is not of the form `digits[.digits][e±digits]`, or has leading zeros.
    #[error("must be a decimal of the form digits[.digits][e±digits], without leading zeros")]
    Malformed,
    /// The amount is less than zero.
    #[error("must be zero or more")]
    Negative,
    /// The amount has more digits than are kept exactly.
    #[error("must have at most 28 digits, 12 of them after the point")]
    TooLong,
}

impl Money {
    /// Parses an amount of the form `digits[.digits][e±digits]`.
    ///
    /// # Errors
    /// The text is malformed, or has more digits than are kept exactly.
    pub fn parse(text: &str) -> Result<Self, MoneyError> {
        let (mantissa, exponent) = match text.find('e') {
            Some(index) => (&text[..index], exponent(&text[index + 1..])?),
            None => (text, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return Err(MoneyError::Malformed),
            None => (mantissa, ""),
        };
        let leading_zero = whole.len() > 1 && whole.starts_with('0');
        if whole.is_empty() || leading_zero || !all_digits(whole) || !all_digits(fraction) {
            return Err(MoneyError::Malformed);
        }
        Self::from_digits(whole, fraction, exponent)
    }

    fn from_digits(whole: &str, fraction: &str, exponent: i64) -> Result<Self, MoneyError> {
        let digits = || whole.bytes().chain(fraction.bytes()).skip_while(|digit| *digit == b'0');
        let significant = i64::try_from(digits().count()).map_err(|_| MoneyError::TooLong)?;
        let scale = i64::try_from(fraction.len()).map_err(|_| MoneyError::TooLong)?.saturating_sub(exponent);
        // Zeros that the exponent puts before the point count as digits: plain notation writes them.
        let written = if significant == 0 { 0 } else { significant.saturating_add((-scale).max(0)) };
        if scale > i64::from(SCALE_MAX) || written > i64::from(DIGITS_MAX) {
            return Err(MoneyError::TooLong);
        }
        let mut mantissa = digits().fold(0_i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
        if scale < 0 && mantissa != 0 {
            mantissa *= 10_i128.pow(scale.unsigned_abs() as u32);
        }
        Self::from_parts(mantissa, scale.max(0) as u32)
    }

    /// The exact sum of price times quantity; it has the largest scale of the prices.
    ///
    /// # Errors
    /// The sum has more digits than are kept exactly.
    pub fn total(priced_quantities: impl Iterator<Item = (Money, u32)> + Clone) -> Result<Self, MoneyError> {
        let scale = priced_quantities.clone().map(|(price, _)| price.scale()).max().unwrap_or(0);
        let mut sum = 0_i128;
        for (price, quantity) in priced_quantities {
            let unit = price.mantissa().checked_mul(10_i128.pow(scale - price.scale()));
            let product = unit.and_then(|unit| unit.checked_mul(i128::from(quantity)));
            sum = product.and_then(|product| sum.checked_add(product)).ok_or(MoneyError::TooLong)?;
        }
        Self::from_parts(sum, scale)
    }

    /// The amount `mantissa` · 10^-`scale`.
    ///
    /// # Errors
    /// The mantissa is negative, or has more digits than are kept exactly.
    pub fn from_parts(mantissa: i128, scale: u32) -> Result<Self, MoneyError> {
        if mantissa < 0 {
            return Err(MoneyError::Negative);
        }
        if mantissa >= 10_i128.pow(DIGITS_MAX) || scale > SCALE_MAX {
            return Err(MoneyError::TooLong);
        }
        Decimal::try_from_i128_with_scale(mantissa, scale).map(Self).map_err(|_| MoneyError::TooLong)
    }

    /// The amount in units of 10^-scale.
    pub fn mantissa(self) -> i128 {
        self.0.mantissa()
    }

    /// Number of digits after the decimal point.
    pub fn scale(self) -> u32 {
        self.0.scale()
    }
}

/// Two amounts are equal when their texts are: `1.0` and `1.00` differ, because a client reads back what it sent.
impl PartialEq for Money {
    fn eq(&self, other: &Self) -> bool {
        self.mantissa() == other.mantissa() && self.scale() == other.scale()
    }
}
impl Eq for Money {}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// An exponent that is too large for any amount saturates; the digit count then decides.
fn exponent(text: &str) -> Result<i64, MoneyError> {
    let (sign, digits) = match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    };
    if digits.is_empty() || !all_digits(digits) {
        return Err(MoneyError::Malformed);
    }
    let size = digits.trim_start_matches('0');
    let size = if size.is_empty() { 0 } else { size.parse::<i64>().unwrap_or(i64::MAX / 4) };
    Ok(sign * size.min(i64::MAX / 4))
}
