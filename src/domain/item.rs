//! The items of an order: 1 to 500, each with a name, a quantity and a price that are legal by construction.
use std::sync::Arc;

use crate::money::{Money, MoneyError};

/// Limit of items of one order.
pub const ITEMS_MAX: usize = 500;
/// Limit of a product name, in Unicode scalar values.
pub const NAME_MAX: usize = 256;
/// Limit of the quantity of one item.
pub const QUANTITY_MAX: u32 = 1_000_000;

/// One product of an order with its quantity and unit price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    name: Arc<str>,
    quantity: u32,
    price: Money,
}

/// Why an item, or a list of items, is not legal. Clients see the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemsError {
    /// The name is empty, too long, only white space, or has control characters.
    #[error("must have 1 to 256 characters, not only white space, and no control characters")]
    Name,
    /// The quantity is not from 1 to 1,000,000.
    #[error("must be an integer from 1 to 1000000")]
    Quantity,
    /// The list has no items, or more than 500.
    #[error("must hold 1 to 500 items")]
    Count,
    /// The total has too many digits.
    #[error("the total must have at most 28 digits")]
    Total(MoneyError),
}

impl Item {
    /// Creates an item from legal parts.
    ///
    /// # Errors
    /// Names the illegal part; the caller knows the item's index.
    pub fn new(name: &str, quantity: u32, price: Money) -> Result<Self, ItemsError> {
        check_name(name)?;
        check_quantity(i128::from(quantity))?;
        Ok(Self { name: name.into(), quantity, price })
    }

    /// The product's name, exactly as the client sent it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of pieces, from 1 to [`QUANTITY_MAX`].
    pub fn quantity(&self) -> u32 {
        self.quantity
    }

    /// Price of a single piece.
    pub fn price(&self) -> Money {
        self.price
    }
}

/// Checks the name of a product.
///
/// # Errors
/// [`ItemsError::Name`] when the name is not legal.
pub fn check_name(name: &str) -> Result<(), ItemsError> {
    let length = name.chars().take(NAME_MAX + 1).count();
    let legal = (1..=NAME_MAX).contains(&length)
        && !name.chars().all(char::is_whitespace)
        && !name.chars().any(char::is_control);
    if legal { Ok(()) } else { Err(ItemsError::Name) }
}

/// Checks the quantity of an item.
///
/// # Errors
/// [`ItemsError::Quantity`] when it is out of range.
pub fn check_quantity(quantity: i128) -> Result<u32, ItemsError> {
    u32::try_from(quantity).ok().filter(|pieces| (1..=QUANTITY_MAX).contains(pieces)).ok_or(ItemsError::Quantity)
}

/// All items of an order and their exact total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items {
    items: Arc<[Item]>,
    total: Money,
}

impl Items {
    /// Creates the items of an order, from 1 to [`ITEMS_MAX`].
    ///
    /// # Errors
    /// [`ItemsError::Count`] for too few or too many, [`ItemsError::Total`] when the total is not exact.
    pub fn new(items: Vec<Item>) -> Result<Self, ItemsError> {
        if items.is_empty() || items.len() > ITEMS_MAX {
            return Err(ItemsError::Count);
        }
        let total = Money::total(items.iter().map(|item| (item.price, item.quantity))).map_err(ItemsError::Total)?;
        Ok(Self { items: items.into(), total })
    }

    /// The items, in the client's order.
    pub fn as_slice(&self) -> &[Item] {
        &self.items
    }

    /// Exact sum of price times quantity.
    pub fn total(&self) -> Money {
        self.total
    }
}
