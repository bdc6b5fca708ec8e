//! Finds the end of a body with the transfer coding `chunked` (RFC 9112, 7.1), as strictly as actix's parser.

/// Subtracts the bytes that are among those `left`; returns their number.
pub(crate) fn count_arrived(left: &mut u64, bytes: &[u8]) -> usize {
    let arrived = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
    *left -= arrived as u64;
    arrived
}

/// Follows the body while it arrives in pieces.
#[derive(Default)]
pub(crate) struct ChunkedBody {
    state: ChunkState,
    /// Bytes of the current chunk that have not arrived.
    left: u64,
}

/// The part of the body that the next byte belongs to.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    SizeStart,
    Size,
    /// White space behind the size.
    SizeSpace,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// The first byte of a trailer line or of the empty line that ends the body.
    LineStart,
    Trailer,
    TrailerLf,
    LastLf,
    Ended,
    Broken,
}

impl ChunkedBody {
    pub(crate) fn has_ended(&self) -> bool {
        self.state == ChunkState::Ended
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.state == ChunkState::Broken
    }

    /// Consumes the first of these bytes, or as many as are data of one chunk; returns their number.
    pub(crate) fn accept(&mut self, bytes: &[u8]) -> usize {
        if self.state == ChunkState::Data {
            let arrived = count_arrived(&mut self.left, bytes);
            if self.left == 0 {
                self.state = ChunkState::DataCr;
            }
            return arrived;
        }
        let Some(byte) = bytes.first() else { return 0 };
        self.state = self.after(*byte);
        1
    }

    fn after(&mut self, byte: u8) -> ChunkState {
        use ChunkState::*;
        match (self.state, byte) {
            (SizeStart | Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => self.add_digit(byte),
            (Size | SizeSpace, b' ' | b'\t') => SizeSpace,
            (Size | SizeSpace, b';') => Extension,
            (Size | SizeSpace | Extension, b'\r') => SizeLf,
            (Extension, b'\t' | b' '..=b'~' | 0x80..) => Extension,
            (SizeLf, b'\n') if self.left > 0 => Data,
            (SizeLf | TrailerLf, b'\n') => LineStart,
            (DataCr, b'\r') => DataLf,
            (DataLf, b'\n') => SizeStart,
            (LineStart, b'\r') => LastLf,
            (Trailer, b'\r') => TrailerLf,
            (LineStart | Trailer, _) => Trailer,
            (LastLf, b'\n') => Ended,
            _ => Broken,
        }
    }

    fn add_digit(&mut self, byte: u8) -> ChunkState {
        let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
        match self.left.checked_mul(16) {
            Some(size) => {
                self.left = size + digit;
                ChunkState::Size
            }
            None => ChunkState::Broken,
        }
    }
}
