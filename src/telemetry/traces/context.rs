//! SpanContext: the identity of a span, and its form in a `traceparent`.

use std::ops::Range;

/// Identity of a span as it passes between components and processes. Both ids are never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// Shared by all spans of a trace.
    pub trace_id: u128,
    /// Unique among the spans of the trace.
    pub span_id: u64,
    /// Whether the spans of the trace are recorded. Children follow the decision of their parent.
    pub is_sampled: bool,
}

impl SpanContext {
    /// Reads a `traceparent` as defined in <https://www.w3.org/TR/trace-context/>; `None` if it is malformed.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let field = |range: Range<usize>| {
            let digits = traceparent.get(range)?;
            let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            is_hex.then(|| u128::from_str_radix(digits, 16).ok()).flatten()
        };
        let dash = |at: usize| traceparent.as_bytes().get(at) == Some(&b'-');
        let version = field(0..2)?;
        // Version 00 has exactly 55 bytes; a later version may add fields after a dash. Version ff is invalid.
        let ends = traceparent.len() == 55 || (version != 0 && dash(55));
        let (trace_id, span_id, flags) = (field(3..35)?, field(36..52)?, field(53..55)?);
        let legal = version != 0xff && dash(2) && dash(35) && dash(52) && ends && trace_id != 0 && span_id != 0;
        let span_id = u64::try_from(span_id).ok()?;
        legal.then_some(Self { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }

    /// The `traceparent` that names this span as the parent.
    pub fn to_traceparent(self) -> String {
        let Self { trace_id, span_id, is_sampled } = self;
        format!("00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn traceparent_of_a_context_is_read_back() {
        for is_sampled in [true, false] {
            let context = SpanContext { trace_id: 7, span_id: u64::MAX, is_sampled };

            assert_eq!(SpanContext::parse(&context.to_traceparent()), Some(context));
        }
        let text = format!("00-{TRACE}-b7ad6b7169203331-01");
        assert_eq!(SpanContext::parse(&text).map(SpanContext::to_traceparent), Some(text));
    }

    #[test]
    fn sampling_decision_is_the_lowest_bit_of_the_flags() {
        for (flags, sampled) in [("00", false), ("01", true), ("02", false), ("03", true), ("ff", true)] {
            let text = format!("00-{TRACE}-b7ad6b7169203331-{flags}");

            assert_eq!(SpanContext::parse(&text).map(|context| context.is_sampled), Some(sampled), "{flags}");
        }
    }

    #[test]
    fn malformed_traceparents_are_refused() {
        let legal = [format!("cc-{TRACE}-b7ad6b7169203331-01-more"), format!("cc-{TRACE}-b7ad6b7169203331-01")];
        let malformed = [
            format!("00-{TRACE}-b7ad6b7169203331-01-more"),
            format!("cc-{TRACE}-b7ad6b7169203331-01.more"),
            format!("ff-{TRACE}-b7ad6b7169203331-01"),
            format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{TRACE}-b7ad6b7169203331-1"),
            format!("00-{TRACE}-b7ad6b716920333é-01"),
            format!("00-+{}-b7ad6b7169203331-01", &TRACE[1..]),
            format!("00_{TRACE}-b7ad6b7169203331-01"),
            String::new(),
        ];

        assert!(legal.iter().all(|text| SpanContext::parse(text).is_some()));
        for text in malformed {
            assert_eq!(SpanContext::parse(&text), None, "{text}");
        }
    }
}
