//! The text form of an order: a JSON array whose first element is the number of the format. A text of another format is a cache miss, so
//! that two releases can share one cache.
use domain::{Hlc, Item, Items, Money, Order, OrderId, RegionId, Status, Subject, Timestamp};

const FORMAT: u32 = 1;

type ItemFields = (String, u32, String);
type OrderFields = (u32, String, String, String, u64, i64, i64, String, i64, u32, Vec<ItemFields>);

/// The text of an order; `None` if it cannot be serialised, which does not happen to a valid order.
pub(crate) fn format(order: &Order) -> Option<String> {
    let item = |item: &Item| (item.name().to_owned(), item.quantity(), item.price().to_string());
    let fields: OrderFields = (
        FORMAT,
        order.id.to_string(),
        order.owner.as_str().to_owned(),
        order.status.as_str().to_owned(),
        order.version,
        order.created_at.millis(),
        order.updated_at.millis(),
        order.region.as_str().to_owned(),
        order.hlc.millis,
        order.hlc.counter,
        order.items.as_slice().iter().map(item).collect(),
    );
    serde_json::to_string(&fields).ok()
}

/// Parses an order; `None` if the text is not an order of this format.
pub(crate) fn parse(text: &str) -> Option<Order> {
    let fields: OrderFields = serde_json::from_str(text).ok()?;
    let (FORMAT, id, owner, status, version, created_at, updated_at, region, hlc_millis, hlc_counter, items) = fields
    else {
        return None;
    };
    let item = |(name, quantity, price): ItemFields| Item::new(&name, quantity, Money::parse(&price).ok()?).ok();
    Some(Order {
        id: OrderId::parse(&id)?,
        owner: Subject::new(&owner)?,
        status: Status::parse(&status)?,
        version,
        created_at: Timestamp::from_millis(created_at),
        updated_at: Timestamp::from_millis(updated_at),
        items: Items::new(items.into_iter().map(item).collect::<Option<_>>()?).ok()?,
        region: RegionId::new(&region),
        hlc: Hlc { millis: hlc_millis, counter: hlc_counter },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_survives_its_text_form_and_other_formats_are_refused() {
        let item = Item::new("tea \"green\" 🦀", 2, Money::parse("4.50").expect("a price")).expect("an item");
        let order = Order {
            id: OrderId::new_v7(Timestamp::from_millis(5), [7; 10]),
            owner: Subject::new("Zoë").expect("a subject"),
            status: Status::Shipped,
            version: u64::MAX,
            created_at: Timestamp::from_millis(5),
            updated_at: Timestamp::from_millis(-6),
            items: Items::new(vec![item]).expect("items"),
            region: RegionId::new("eu-west"),
            hlc: Hlc { millis: 6, counter: u32::MAX },
        };

        let text = format(&order).expect("a text");

        assert_eq!(parse(&text), Some(order));
        assert_eq!(parse(&text.replacen("[1,", "[2,", 1)), None);
        assert_eq!(parse(&text[..text.len() - 1]), None);
        assert_eq!(parse("{}"), None);
    }
}
