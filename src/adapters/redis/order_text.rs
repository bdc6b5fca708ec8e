//! An order as the cache keeps it: a JSON array whose first member is the format's number. A text of another format is a miss, so that
//! two releases can share one cache.
use domain::{Hlc, Item, Items, Money, Order, OrderId, RegionId, Status, Subject, Timestamp};

const FORMAT: u32 = 1;

type Line = (String, u32, String);
type Fields = (u32, String, String, String, u64, i64, i64, String, i64, u32, Vec<Line>);

/// Writes an order; `None` where its parts cannot be written, which no legal order has.
pub(crate) fn write(order: &Order) -> Option<String> {
    let line = |line: &Item| (line.name().to_owned(), line.quantity(), line.price().to_string());
    let fields: Fields = (
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
        order.items.as_slice().iter().map(line).collect(),
    );
    serde_json::to_string(&fields).ok()
}

/// Reads an order; `None` for anything that is not one of this format.
pub(crate) fn read(text: &str) -> Option<Order> {
    let fields: Fields = serde_json::from_str(text).ok()?;
    let (FORMAT, id, owner, status, version, created_at, updated_at, region, hlc_millis, hlc_counter, lines) = fields
    else {
        return None;
    };
    let line = |(name, quantity, price): Line| Item::new(&name, quantity, Money::parse(&price).ok()?).ok();
    Some(Order {
        id: OrderId::parse(&id)?,
        owner: Subject::new(&owner)?,
        status: Status::parse(&status)?,
        version,
        created_at: Timestamp::from_millis(created_at),
        updated_at: Timestamp::from_millis(updated_at),
        items: Items::new(lines.into_iter().map(line).collect::<Option<_>>()?).ok()?,
        region: RegionId::new(&region),
        hlc: Hlc { millis: hlc_millis, counter: hlc_counter },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_back_as_it_was_and_another_format_does_not() {
        let item = Item::new("tea \"green\" 🦀", 2, Money::parse("4.50").expect("money")).expect("an item");
        let order = Order {
            id: OrderId::at(Timestamp::from_millis(5), [7; 10]),
            owner: Subject::new("Zoë").expect("a name"),
            status: Status::Shipped,
            version: u64::MAX,
            created_at: Timestamp::from_millis(5),
            updated_at: Timestamp::from_millis(-6),
            items: Items::new(vec![item]).expect("items"),
            region: RegionId::new("eu-west"),
            hlc: Hlc { millis: 6, counter: u32::MAX },
        };

        let text = write(&order).expect("written");

        assert_eq!(read(&text), Some(order));
        assert_eq!(read(&text.replacen("[1,", "[2,", 1)), None);
        assert_eq!(read(&text[..text.len() - 1]), None);
        assert_eq!(read("{}"), None);
    }
}
