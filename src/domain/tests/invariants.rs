//! The domain's rules as properties of generated orders, prices and stamps.
use domain::*;
use proptest::prelude::*;

fn money() -> impl Strategy<Value = Money> {
    (0_i128..10_000_000_000_000_000, 0_u32..=12)
        .prop_map(|(mantissa, scale)| Money::from_parts(mantissa, scale).expect("16 digits fit"))
}

fn item() -> impl Strategy<Value = Item> {
    ("[a-zA-Z0-9é漢 ]{0,20}[a-z]", 1_u32..=1_000_000, money())
        .prop_map(|(name, quantity, price)| Item::new(&name, quantity, price).expect("a legal item"))
}

fn status() -> impl Strategy<Value = Status> {
    prop::sample::select(Status::ALL.to_vec())
}

fn hlc() -> impl Strategy<Value = Hlc> {
    (0_i64..1_000, 0_u32..5).prop_map(|(millis, counter)| Hlc { millis, counter })
}

fn placed(items: Vec<Item>, at: i64) -> (Order, OrderEvent) {
    let now = Timestamp::from_millis(at);
    Order::place(NewOrder {
        id: OrderId::new_v7(now, [1; 10]),
        event_id: EventId::new_v7(now, [2; 10]),
        owner: Subject::new("ann").expect("not empty"),
        items: Items::new(items).expect("legal items"),
        region: RegionId::new("eu"),
        now,
        physical_time: now,
        received: Hlc::default(),
    })
}

fn change(at: i64) -> ChangeContext {
    let now = Timestamp::from_millis(at);
    ChangeContext {
        event_id: EventId::new_v7(now, [3; 10]),
        region: RegionId::new("eu"),
        now,
        physical_time: now,
        received: Hlc::default(),
    }
}

proptest! {
    #[test]
    fn price_equals_the_price_parsed_from_its_text(price in money()) {
        prop_assert_eq!(Money::parse(&price.to_string()), Ok(price));
    }

    #[test]
    fn parsing_a_price_never_panics(text in "[-+]?[0-9]{0,32}(\\.[0-9]{0,16})?(e[-+]?[0-9]{0,22})?") {
        if let Ok(price) = Money::parse(&text) {
            prop_assert!(price.to_string().bytes().filter(u8::is_ascii_digit).count() <= 29 + 12);
            prop_assert!(!price.to_string().contains('e'));
        }
    }

    #[test]
    fn total_is_the_exact_sum_at_the_largest_scale(items in prop::collection::vec(item(), 1..20)) {
        let exact: i128 = items
            .iter()
            .map(|item| item.price().mantissa() * 10_i128.pow(12 - item.price().scale()) * i128::from(item.quantity()))
            .sum();

        let placed = Items::new(items.clone());
        let scale = items.iter().map(|item| item.price().scale()).max().unwrap_or(0);
        let fits = exact / 10_i128.pow(12 - scale) < 10_i128.pow(28);

        prop_assert_eq!(placed.is_ok(), fits);
        if let Ok(placed) = placed {
            let total = placed.total();
            prop_assert_eq!(total.mantissa() * 10_i128.pow(12 - total.scale()), exact);
            prop_assert_eq!(total.scale(), scale);
        }
    }

    #[test]
    fn versions_and_sequences_have_no_gap_after_any_changes(
        item in item(), moves in prop::collection::vec((status(), -500_i64..500), 0..12)
    ) {
        let (mut order, first) = placed(vec![item], 10_000);
        let mut events = vec![first];
        for (to, drift) in moves {
            let before = order.clone();
            match order.change_status(to, change(10_000 + drift)) {
                Ok((next, event)) => {
                    prop_assert!(before.status.may_become(to));
                    prop_assert!(next.hlc > before.hlc, "the stamp grows even when the wall clock goes back");
                    prop_assert!(next.updated_at >= before.updated_at);
                    prop_assert_eq!(&next.items, &before.items);
                    events.push(event);
                    order = next;
                }
                Err(refusal) => {
                    prop_assert!(!before.status.may_become(to));
                    prop_assert_eq!(refusal, ChangeRefusal::IllegalTransition { from: before.status, to });
                }
            }
        }
        let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        prop_assert_eq!(sequences, (1..=events.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(order.version + 1, events.len() as u64);
    }

    #[test]
    fn both_ways_to_cancel_record_the_same_event(item in item()) {
        let (order, _) = placed(vec![item], 10);
        let (_, by_cancel) = order.cancel(change(20)).expect("pending");
        let (_, by_status) = order.change_status(Status::Cancelled, change(20)).expect("pending");

        prop_assert_eq!(by_cancel.event_type, EventType::OrderCancelled);
        prop_assert_eq!(by_cancel, by_status);
    }

    #[test]
    fn stamps_are_totally_ordered_and_each_tick_grows(a in hlc(), b in hlc(), now in 0_i64..1_000) {
        let now = Timestamp::from_millis(now);

        prop_assert!(a.tick(now) > a);
        let merged = a.merge(b, now);
        prop_assert!(merged >= a && merged.millis <= a.millis.max(now.millis()), "bounded");
        prop_assert_eq!(merged >= b, b.millis <= now.millis() || b <= a);
        prop_assert_eq!(a == b, a <= b && b <= a);
        prop_assert_eq!(Hlc::parse(&a.to_string()), Some(a));
    }
}

#[test]
fn prices_are_parsed_as_the_contract_defines() {
    let cases = [
        ("1e2", Ok("100")),
        ("0", Ok("0")),
        ("0.00", Ok("0.00")),
        ("10.50", Ok("10.50")),
        ("1.50e1", Ok("15.0")),
        ("125e-2", Ok("1.25")),
        ("1e+3", Ok("1000")),
        ("0e99999999999999999999", Ok("0")),
        ("9999999999999999999999999999", Ok("9999999999999999999999999999")),
        ("10000000000000000000000000000", Err(MoneyError::TooLong)),
        ("1e27", Ok("1000000000000000000000000000")),
        ("1e28", Err(MoneyError::TooLong)),
        ("1e99999999999999999999", Err(MoneyError::TooLong)),
        ("1e-12", Ok("0.000000000001")),
        ("1e-13", Err(MoneyError::TooLong)),
        ("0.0000000000001", Err(MoneyError::TooLong)),
        ("01", Err(MoneyError::Malformed)),
        ("00.5", Err(MoneyError::Malformed)),
        (".5", Err(MoneyError::Malformed)),
        ("5.", Err(MoneyError::Malformed)),
        ("", Err(MoneyError::Malformed)),
        ("-1", Err(MoneyError::Malformed)),
        ("+1", Err(MoneyError::Malformed)),
        ("1e", Err(MoneyError::Malformed)),
        ("1 ", Err(MoneyError::Malformed)),
        ("١", Err(MoneyError::Malformed)),
        ("NaN", Err(MoneyError::Malformed)),
        ("1_000", Err(MoneyError::Malformed)),
    ];
    for (text, expected) in cases {
        assert_eq!(Money::parse(text).map(|price| price.to_string()), expected.map(String::from), "{text}");
    }
}

#[test]
fn name_length_counts_unicode_scalar_values() {
    let price = Money::parse("1").expect("a price");
    let check = |name: &str| Item::new(name, 1, price).map(|_| ());

    assert_eq!(check(&"漢".repeat(256)), Ok(()));
    assert_eq!(check(&"漢".repeat(257)), Err(ItemsError::Name));
    assert_eq!(check(" padded "), Ok(()));
    for bad in ["", " ", "\u{3000}", "a\tb", "a\u{85}b", "a\u{7f}"] {
        assert_eq!(check(bad), Err(ItemsError::Name), "{bad:?}");
    }
}
