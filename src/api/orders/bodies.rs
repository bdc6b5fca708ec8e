//! The JSON bodies of the order routes. The structs are both what serde reads and writes and the schemas of the OpenAPI document.
use app::contract::rfc3339;
use domain::{Item, Money, Order, OrderId};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::openapi::schemas::{Amount, AnyVersion, OrderStatus, Price, ProductName};
use crate::request::json::JsonMember;
use crate::request::response::AsText;

/// An order with its items.
#[derive(Serialize, ToSchema)]
#[schema(as = Order)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OrderBody<'a> {
    /// A UUID v7, so ids sort by creation time.
    #[schema(value_type = String, format = "uuid", example = "019a9c1e-7b1a-7c3e-9d55-2f6b1c0a4e11")]
    id: AsText<OrderId>,
    #[schema(value_type = OrderStatus, example = "PENDING")]
    status: &'static str,
    /// 0 at creation, incremented by each change.
    #[schema(example = 0)]
    version: u64,
    #[schema(value_type = String, format = DateTime, example = "2026-01-31T12:00:00.000Z")]
    created_at: String,
    #[schema(value_type = String, format = DateTime, example = "2026-01-31T12:00:00.000Z")]
    updated_at: String,
    #[schema(value_type = Vec<ItemBody<'_>>, min_items = 1, max_items = 500)]
    items: ItemList<'a>,
    /// The exact sum of prices times quantities, with the largest scale of the prices.
    #[schema(value_type = Amount, example = "25.98")]
    total: AsText<Money>,
}

impl<'a> OrderBody<'a> {
    pub(crate) fn new(order: &'a Order) -> Self {
        Self {
            id: AsText(order.id),
            status: order.status.as_str(),
            version: order.version,
            created_at: rfc3339(order.created_at),
            updated_at: rfc3339(order.updated_at),
            items: ItemList(order.items.as_slice()),
            total: AsText(order.items.total()),
        }
    }

    /// The order with an empty list of items, which the caller fills in.
    pub(crate) fn without_items(order: &'a Order) -> Self {
        Self { items: ItemList(&[]), ..Self::new(order) }
    }
}

struct ItemList<'a>(&'a [Item]);

impl Serialize for ItemList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut items = serializer.serialize_seq(Some(self.0.len()))?;
        for item in self.0 {
            items.serialize_element(&ItemBody::new(item))?;
        }
        items.end()
    }
}

/// An item of an order.
#[derive(Serialize, ToSchema)]
#[schema(as = Item)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ItemBody<'a> {
    #[schema(example = "keyboard")]
    product_name: &'a str,
    #[schema(example = 2)]
    quantity: u32,
    /// In plain notation, with the scale that the client sent.
    #[schema(value_type = Amount, example = "12.99")]
    price: AsText<Money>,
}

impl<'a> ItemBody<'a> {
    pub(crate) fn new(item: &'a Item) -> Self {
        Self { product_name: item.name(), quantity: item.quantity(), price: AsText(item.price()) }
    }
}

/// A page of orders.
#[derive(Serialize, ToSchema)]
#[schema(as = OrderPage)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageBody<'a> {
    pub(crate) orders: Vec<OrderBody<'a>>,
    /// The page number from 0; missing in keyset pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false, example = 0)]
    pub(crate) page: Option<u64>,
    /// The maximum number of orders in a page.
    #[schema(example = 100)]
    pub(crate) size: u32,
    /// The number of orders in all pages.
    #[schema(example = 1)]
    pub(crate) total_elements: u64,
    #[schema(example = 1)]
    pub(crate) total_pages: u64,
}

/// The order to create. Unknown members are ignored, repeated ones are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = CreateOrder)]
pub(crate) struct CreateBody<'a> {
    #[serde(borrow, default)]
    #[schema(required = true, value_type = Vec<NewItemBody<'_>>, min_items = 1, max_items = 500)]
    pub(crate) items: JsonMember<'a>,
}

/// An item of the order to create.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewItem)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewItemBody<'a> {
    #[serde(borrow, default)]
    #[schema(required = true, value_type = ProductName, example = "keyboard")]
    pub(crate) product_name: JsonMember<'a>,
    #[serde(borrow, default)]
    #[schema(required = true, value_type = u32, minimum = 1, maximum = 1_000_000, example = 2)]
    pub(crate) quantity: JsonMember<'a>,
    #[serde(borrow, default)]
    #[schema(required = true, value_type = Price)]
    pub(crate) price: JsonMember<'a>,
}

/// The change of an order's status.
#[derive(Deserialize, ToSchema)]
#[schema(as = ChangeStatus)]
pub(crate) struct ChangeBody<'a> {
    #[serde(borrow, default)]
    #[schema(required = true, value_type = OrderStatus)]
    pub(crate) status: JsonMember<'a>,
    /// The version that the client saw last; optional with `If-Match`.
    #[serde(borrow, default)]
    #[schema(required = false, value_type = AnyVersion, example = 0)]
    pub(crate) version: JsonMember<'a>,
}
