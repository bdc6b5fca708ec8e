//! The lines of an order: 1…500 of them, each with a name, a quantity and a price that are legal by construction.
use std::sync::Arc;

use crate::money::{Money, MoneyError};

/// Most lines of one order.
pub const ITEMS_MAX: usize = 500;
/// Most Unicode scalar values of a product's name.
pub const NAME_MAX: usize = 256;
/// Most pieces of one line.
pub const QUANTITY_MAX: u32 = 1_000_000;

/// One line of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    name: Arc<str>,
    quantity: u32,
    price: Money,
}

/// Why something is no line, or no set of lines. The message is fit for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemsError {
    /// Empty, too long, blank, or with control characters.
    #[error("must have 1 to 256 characters, not only white space, and no control characters")]
    Name,
    /// Outside 1…1,000,000.
    #[error("must be an integer from 1 to 1000000")]
    Quantity,
    /// No line, or more than 500.
    #[error("must hold 1 to 500 items")]
    Count,
    /// The sum has too many digits.
    #[error("the total must have at most 28 digits")]
    Total(MoneyError),
}

impl Item {
    /// A line, if its parts are legal.
    ///
    /// # Errors
    /// Names the part that is not: the caller knows which line it is.
    pub fn new(name: &str, quantity: u32, price: Money) -> Result<Self, ItemsError> {
        check_name(name)?;
        check_quantity(i128::from(quantity))?;
        Ok(Self { name: name.into(), quantity, price })
    }

    /// The product's name, exactly as it came.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Pieces.
    pub fn quantity(&self) -> u32 {
        self.quantity
    }

    /// Price of one piece.
    pub fn price(&self) -> Money {
        self.price
    }
}

/// Whether a product may have this name.
///
/// # Errors
/// [`ItemsError::Name`].
pub fn check_name(name: &str) -> Result<(), ItemsError> {
    let length = name.chars().take(NAME_MAX + 1).count();
    let legal = (1..=NAME_MAX).contains(&length)
        && !name.chars().all(char::is_whitespace)
        && !name.chars().any(char::is_control);
    if legal { Ok(()) } else { Err(ItemsError::Name) }
}

/// Whether a line may have this many pieces.
///
/// # Errors
/// [`ItemsError::Quantity`].
pub fn check_quantity(quantity: i128) -> Result<u32, ItemsError> {
    u32::try_from(quantity).ok().filter(|pieces| (1..=QUANTITY_MAX).contains(pieces)).ok_or(ItemsError::Quantity)
}

/// All lines of an order and what they add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items {
    lines: Arc<[Item]>,
    total: Money,
}

impl Items {
    /// The lines of an order, if there are neither too few nor too many and their total is exact.
    ///
    /// # Errors
    /// [`ItemsError::Count`] or [`ItemsError::Total`].
    pub fn new(lines: Vec<Item>) -> Result<Self, ItemsError> {
        if lines.is_empty() || lines.len() > ITEMS_MAX {
            return Err(ItemsError::Count);
        }
        let total = Money::total(lines.iter().map(|line| (line.price, line.quantity))).map_err(ItemsError::Total)?;
        Ok(Self { lines: lines.into(), total })
    }

    /// The lines, in the client's order.
    pub fn lines(&self) -> &[Item] {
        &self.lines
    }

    /// Prices times quantities, exactly.
    pub fn total(&self) -> Money {
        self.total
    }
}
