//! An order as clients see it, and what they send. Schemas in the OpenAPI document are generated from these.
use std::fmt::Display;

use domain::{Item, Money, Order, OrderId};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use app::contract::rfc3339;

pub(crate) const STATUS_MESSAGE: &str = "must be one of PENDING, PROCESSING, SHIPPED, DELIVERED, CANCELLED";

/// Written as it displays, without a detour through a string.
pub(crate) struct Shown<T>(pub(crate) T);

impl<T: Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Where an order stands.
#[derive(ToSchema)]
#[schema(as = OrderStatus)]
#[allow(dead_code, reason = "only its schema is used; the names are the domain's, and a test holds them together")]
pub(crate) enum OrderStatus {
    #[schema(rename = "PENDING")]
    Pending,
    #[schema(rename = "PROCESSING")]
    Processing,
    #[schema(rename = "SHIPPED")]
    Shipped,
    #[schema(rename = "DELIVERED")]
    Delivered,
    #[schema(rename = "CANCELLED")]
    Cancelled,
}

/// An order.
#[derive(Serialize, ToSchema)]
#[schema(as = Order)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OrderBody<'a> {
    /// UUID v7: sorts as orders were placed.
    #[schema(value_type = String, format = "uuid", example = "019a9c1e-7b1a-7c3e-9d55-2f6b1c0a4e11")]
    id: Shown<OrderId>,
    #[schema(value_type = OrderStatus, example = "PENDING")]
    status: &'static str,
    /// 0 when placed, one more for each change.
    #[schema(example = 0)]
    version: u64,
    #[schema(value_type = String, format = DateTime, example = "2026-01-31T12:00:00.000Z")]
    created_at: String,
    #[schema(value_type = String, format = DateTime, example = "2026-01-31T12:00:00.000Z")]
    updated_at: String,
    #[schema(value_type = Vec<ItemBody<'_>>, min_items = 1, max_items = 500)]
    items: Lines<'a>,
    /// Prices times quantities, exactly; its scale is the largest among the prices.
    #[schema(value_type = String, example = "25.98")]
    total: Shown<Money>,
}

impl<'a> OrderBody<'a> {
    pub(crate) fn of(order: &'a Order) -> Self {
        Self {
            id: Shown(order.id),
            status: order.status.as_str(),
            version: order.version,
            created_at: rfc3339(order.created_at),
            updated_at: rfc3339(order.updated_at),
            items: Lines(order.items.as_slice()),
            total: Shown(order.items.total()),
        }
    }

    pub(crate) fn all(orders: &'a [Order]) -> Vec<Self> {
        orders.iter().map(Self::of).collect()
    }
}

struct Lines<'a>(&'a [Item]);

impl Serialize for Lines<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut lines = serializer.serialize_seq(Some(self.0.len()))?;
        for item in self.0 {
            lines.serialize_element(&ItemBody::of(item))?;
        }
        lines.end()
    }
}

/// A line of an order.
#[derive(Serialize, ToSchema)]
#[schema(as = Item)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ItemBody<'a> {
    #[schema(example = "keyboard")]
    product_name: &'a str,
    #[schema(example = 2)]
    quantity: u32,
    /// In plain notation, with the scale it came with.
    #[schema(value_type = String, example = "12.99")]
    price: Shown<Money>,
}

impl<'a> ItemBody<'a> {
    fn of(item: &'a Item) -> Self {
        Self { product_name: item.name(), quantity: item.quantity(), price: Shown(item.price()) }
    }
}

/// A page of orders.
#[derive(Serialize, ToSchema)]
#[schema(as = OrderPage)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageBody<'a> {
    pub(crate) orders: Vec<OrderBody<'a>>,
    /// From 0; left out of a page asked for with `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false, example = 0)]
    pub(crate) page: Option<u64>,
    /// Most orders of a page.
    #[schema(example = 100)]
    pub(crate) size: u32,
    /// Orders on all pages.
    #[schema(example = 1)]
    pub(crate) total_elements: u64,
    #[schema(example = 1)]
    pub(crate) total_pages: u64,
}

/// What to order. Unknown members are ignored, duplicate ones refused.
#[derive(ToSchema)]
#[schema(as = CreateOrder)]
#[allow(dead_code, reason = "only its schema is used; orders/draft.rs reads the body")]
pub(crate) struct CreateBody {
    #[schema(min_items = 1, max_items = 500)]
    items: Vec<NewItemBody>,
}

/// A line to order.
#[derive(ToSchema)]
#[schema(as = NewItem, rename_all = "camelCase")]
#[allow(dead_code, reason = "only its schema is used; orders/draft.rs reads the body")]
pub(crate) struct NewItemBody {
    /// Not only white space, no control characters; kept as it is.
    #[schema(min_length = 1, max_length = 256, example = "keyboard")]
    product_name: String,
    #[schema(minimum = 1, maximum = 1_000_000, example = 2)]
    quantity: u32,
    price: PriceBody,
}

/// Zero or more; at most 28 digits, 12 of them after the point. Read as a decimal, never through a float.
#[derive(Serialize, ToSchema)]
#[schema(as = Price, example = "12.99")]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema is used; orders/draft.rs reads the body")]
pub(crate) enum PriceBody {
    /// `digits[.digits][e±digits]`
    Text(String),
    Number(f64),
}

/// Where to move an order.
#[derive(ToSchema)]
#[schema(as = ChangeStatus)]
#[allow(dead_code, reason = "only its schema is used; orders/change.rs reads the body")]
pub(crate) struct ChangeBody {
    status: OrderStatus,
    /// The version last seen; may be left out when `If-Match` is there.
    #[schema(required = false, example = 0)]
    version: u64,
}
