//! Schemas of texts and numbers that several operations take or return. They accept exactly what the code accepts, as far as a schema can.
use std::borrow::Cow;

use app::port_types::{FailureType, OperatorAction, RowStatus};
use domain::Status;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

const UUID: &str = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
const AGE: &str = "0|[0-9]{1,9}(ms|s)|[0-9]{1,5}(m|h)|[0-9]{1,4}d";
const CURSOR: &str = "[0-9]{1,9}/[0-9]{1,18}(@[0-9]{1,15})?";
const GROUP: &str = "[A-Za-z0-9._-]{1,128}";
const OFFSETS: &str = "[0-9]{1,9}:[0-9]{1,18}(,[0-9]{1,9}:[0-9]{1,18})*";
/// Characters of Unicode's class Cc.
const CONTROL: &str = r"\x00-\x1f\x7f-\x9f";
/// White space outside of that class.
const WHITE_SPACE: &str = r" \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000";

const ROW_STATUSES: [RowStatus; 5] =
    [RowStatus::Pending, RowStatus::InFlight, RowStatus::Failed, RowStatus::Parked, RowStatus::Sent];

/// Declares types that stand for a schema in annotations.
macro_rules! schemas {
    ($($(#[doc = $doc:literal])* $name:ident = $schema:expr;)+) => {
        $(
            $(#[doc = $doc])*
            pub(crate) struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    $schema.into()
                }
            }

            impl ToSchema for $name {
                fn name() -> Cow<'static, str> {
                    stringify!($name).into()
                }
            }
        )+
    };
}

/// Description of an event key in the document.
const KEY_DESCRIPTION: &str = "The order id, for an order's event. At most 1024 bytes in UTF-8.";

schemas! {
    OrderStatus = enumeration(&Status::ALL.map(Status::as_str)).description(Some("The status of an order."));
    OrderStatusFilter = enumeration_or_empty(&Status::ALL.map(Status::as_str));
    /// The status of an outbox row.
    RowStatusName = enumeration(&ROW_STATUSES.map(RowStatus::as_str));
    /// The status of an outbox row as a filter.
    RowStatusFilter = enumeration_or_empty(&ROW_STATUSES.map(RowStatus::as_str));
    /// An operator's action on an outbox row as a filter.
    OperatorActionFilter = enumeration_or_empty(&OperatorAction::ALL.map(OperatorAction::as_str));
    /// The class of a failure.
    FailureTypeName = enumeration(&FailureType::ALL.map(FailureType::as_str));
    /// The class of a failure as a filter.
    FailureTypeFilter = enumeration_or_empty(&FailureType::ALL.map(FailureType::as_str));
    /// Yes or no as a filter.
    BooleanFilter = enumeration_or_empty(&["true", "false"]);
    /// The effect of a fault on an actor.
    FaultAction = enumeration(&["panic", "stop", "pause", "resume"]);
    /// An integer of any size; the routes clamp it.
    AnyInteger = ObjectBuilder::new().schema_type(Type::Integer);
    /// A version; one beyond 64 bits equals no order's.
    AnyVersion = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    /// The number of an outbox row.
    RowNumber = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(i64::MAX));
    /// The number of a partition of the outbox.
    PartitionNumber = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(i32::MAX));
    /// A hyphenated UUID as a filter.
    UuidFilter = text(&format!("^({UUID})?$"));
    EventKeyFilter = text(&format!("^[^{CONTROL}]*$")).max_length(Some(1_024)).description(Some(KEY_DESCRIPTION));
    EventKeyText = text(&format!("^[^{CONTROL}]+$"))
        .min_length(Some(1))
        .max_length(Some(1_024))
        .description(Some(KEY_DESCRIPTION));
    /// The age of a record as a filter.
    AgeFilter = text(&format!("^({AGE})?$"));
    /// The age of a record.
    AgeText = text(&format!("^({AGE})$"));
    /// A position in the dead letters as a filter.
    CursorFilter = text(&format!("^({CURSOR})?$"));
    /// A position in the dead letters.
    CursorText = text(&format!("^{CURSOR}$"));
    /// The name of a consumer group.
    GroupName = text(&format!("^{GROUP}$"));
    /// The name of a consumer group as a parameter.
    GroupNameFilter = text(&format!("^({GROUP})?$"));
    /// Where a reader begins, as a parameter.
    ReadStartFilter = text(&format!("^(beginning|end|{OFFSETS})?$"));
    /// Where a reader begins.
    ReadStartText = text(&format!("^(beginning|end|{OFFSETS})$"));
    /// Numbers of partitions as a parameter.
    PartitionListFilter = text("^([0-9]{1,9}(,[0-9]{1,9})*)?$");
    /// A text without control characters.
    PrintableText = text(&format!("^[^{CONTROL}]*$"));
    /// The reason of an operator's command.
    ReasonText = text(r"^[^\x00]*$").max_length(Some(1_000));
    /// A label of a metric and its value.
    TagFilter = text("^[^:]*:");
    ProductName = text(&format!("^[^{CONTROL}]*[^{CONTROL}{WHITE_SPACE}][^{CONTROL}]*$"))
        .min_length(Some(1))
        .max_length(Some(256))
        .description(Some("Not only white space, no control characters; stored as sent."));
    /// A price that a client sends.
    Price = price();
    /// An amount in plain notation.
    Amount = text(r"^(0|[1-9][0-9]*)(\.[0-9]+)?$");
}

fn enumeration(values: &[&'static str]) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(values.to_vec()))
}

/// Query parameters that are empty count as absent.
fn enumeration_or_empty(names: &[&'static str]) -> ObjectBuilder {
    enumeration(&[&[""], names].concat())
}

fn text(pattern: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern))
}

fn price() -> OneOfBuilder {
    let number = ObjectBuilder::new()
        .schema_type(Type::Number)
        .minimum(Some(0))
        .exclusive_maximum(Some(1e28))
        .multiple_of(Some(1e-12));
    OneOfBuilder::new()
        .item(text(&price_pattern()).description(Some("`digits[.digits][e±digits]`")))
        .item(number)
        .description(Some(
            "Zero or more; at most 28 digits, 12 of them after the point. Read as a decimal, never through a float.",
        ))
        .examples(["12.99"])
}

/// Exactly the accepted texts in plain notation, and those with an exponent that need no counting of digits.
fn price_pattern() -> String {
    let fraction = |digits: usize| format!(r"(0|[1-9][0-9]{{0,{}}})\.[0-9]{{{digits}}}", 27 - digits);
    let plain: Vec<String> = std::iter::once("(0|[1-9][0-9]{0,27})".to_owned()).chain((1..=12).map(fraction)).collect();
    format!(r"^({}|(0|[1-9][0-9]{{0,15}})(\.[0-9]{{1,6}})?e[+-]?[0-6])$", plain.join("|"))
}
