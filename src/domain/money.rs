//! Money as exact decimals. A price keeps the scale it came with; nothing is ever rounded or read through a float.
use std::fmt;

use rust_decimal::Decimal;

/// Most significant digits, counted in plain notation. 28 is what a 96-bit mantissa holds without loss.
pub const DIGITS_MAX: u32 = 28;
/// Most digits after the point.
pub const SCALE_MAX: u32 = 12;

/// An amount that is zero or more, with at most [`DIGITS_MAX`] digits and [`SCALE_MAX`] of them after the point.
#[derive(Clone, Copy, Debug)]
pub struct Money(Decimal);

/// Why a text is no amount. The message is fit for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not of the form `digits[.digits][e±digits]`, or with leading zeros.
    #[error("must be a decimal of the form digits[.digits][e±digits], without leading zeros")]
    Malformed,
    /// Below zero.
    #[error("must be zero or more")]
    Negative,
    /// More digits than are kept exactly.
    #[error("must have at most 28 digits, 12 of them after the point")]
    TooLong,
}

impl Money {
    /// Reads `digits[.digits][e±digits]`.
    ///
    /// # Errors
    /// The text is malformed, or has more digits than are kept exactly.
    pub fn parse(text: &str) -> Result<Self, MoneyError> {
        let (mantissa, exponent) = match text.find('e') {
            Some(at) => (&text[..at], exponent(&text[at + 1..])?),
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
        Self::shifted(whole, fraction, exponent)
    }

    fn shifted(whole: &str, fraction: &str, exponent: i64) -> Result<Self, MoneyError> {
        let digits = || whole.bytes().chain(fraction.bytes()).skip_while(|digit| *digit == b'0');
        let significant = i64::try_from(digits().count()).map_err(|_| MoneyError::TooLong)?;
        let scale = i64::try_from(fraction.len()).map_err(|_| MoneyError::TooLong)?.saturating_sub(exponent);
        // Zeros that the exponent puts before the point count as digits too: plain notation writes them out.
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

    /// Adds prices times quantities exactly; the sum has the largest scale among the prices.
    ///
    /// # Errors
    /// The sum has more digits than are kept exactly.
    pub fn total(lines: impl Iterator<Item = (Money, u32)> + Clone) -> Result<Self, MoneyError> {
        let scale = lines.clone().map(|(price, _)| price.scale()).max().unwrap_or(0);
        let mut sum = 0_i128;
        for (price, quantity) in lines {
            let unit = price.mantissa().checked_mul(10_i128.pow(scale - price.scale()));
            let line = unit.and_then(|unit| unit.checked_mul(i128::from(quantity)));
            sum = line.and_then(|line| sum.checked_add(line)).ok_or(MoneyError::TooLong)?;
        }
        Self::from_parts(sum, scale)
    }

    /// An amount of so many units of 10^-scale.
    ///
    /// # Errors
    /// Negative, or more digits than are kept exactly.
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

    /// Digits after the point.
    pub fn scale(self) -> u32 {
        self.0.scale()
    }
}

/// Equal means written alike: `1.0` and `1.00` are different prices to a client that reads them back.
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

/// An exponent too large for any amount saturates; what it makes of the digits decides.
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
