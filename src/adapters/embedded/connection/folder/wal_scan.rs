//! Finds damage in SQLite's write-ahead log (WAL), which SQLite itself takes for the log's end: it reads the frames up to the first one with a wrong
//! checksum, and overwrites the rest. See <https://www.sqlite.org/fileformat2.html#walformat>.
use std::io::{ErrorKind, Read};

/// The first bytes of the WAL: the file and its generation.
const HEADER_BYTES: usize = 32;

/// The bytes of a frame before its page.
const FRAME_HEADER_BYTES: usize = 24;

/// What a WAL contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalScan {
    /// The commits that SQLite reads.
    pub(crate) commits: u64,
    /// The damage that hides further commits.
    pub(crate) damage: Option<WalDamage>,
    /// The random numbers of this generation of the WAL.
    pub(crate) salts: [u32; 2],
}

/// A damaged part of a WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalDamage {
    /// The header, so that SQLite ignores every frame. It is synced before the first frame is written, and lies in one sector: a crash leaves it
    /// complete, or without frames behind it.
    Header,
    /// A frame before commits that were synced.
    Frame {
        /// The number of the frame; the first one is 1.
        frame: u64,
        /// The commits behind it that were synced for certain.
        synced_commits: u64,
    },
}

/// Checksums and salts of a WAL, which each frame continues.
#[derive(Clone, Copy)]
struct WalHeader {
    page_bytes: usize,
    has_big_endian_checksums: bool,
    salts: [u32; 2],
    checksum: [u32; 2],
}

/// Reads a WAL that is written with `synchronous = FULL`: a commit is synced before the next frame is written. Therefore only frames of the last commit
/// can be lost, and a frame that continues the checksum of a commit proves that the commit was synced. Frames of a rolled-back transaction may
/// follow the end, commits whose sync failed too, but no frame continues these.
pub(crate) fn scan(mut wal: impl Read) -> std::io::Result<WalScan> {
    let mut bytes = [0; HEADER_BYTES];
    if !fill(&mut wal, &mut bytes)? {
        return Ok(WalScan::default());
    }
    let Some(header) = WalHeader::parse(&bytes) else {
        let has_frames = wal.read(&mut [0])? > 0;
        return Ok(WalScan { damage: has_frames.then_some(WalDamage::Header), ..WalScan::default() });
    };
    scan_frames(wal, header)
}

fn scan_frames(mut wal: impl Read, header: WalHeader) -> std::io::Result<WalScan> {
    let mut frame = vec![0; FRAME_HEADER_BYTES + header.page_bytes];
    let (mut previous, mut is_previous_commit) = (header.checksum, false);
    let (mut number, mut commits, mut first_bad, mut synced_commits) = (0, 0, None, 0);
    while fill(&mut wal, &mut frame)? {
        number += 1;
        let [_, size_after_commit, salt, salt2, stored, stored2] = words(&frame);
        let continues = [salt, salt2] == header.salts && header.frame_checksum(previous, &frame) == [stored, stored2];
        let is_commit = size_after_commit != 0;
        match first_bad {
            None if continues => commits += u64::from(is_commit),
            None => first_bad = Some(number),
            Some(_) => synced_commits += u64::from(continues && is_previous_commit),
        }
        (previous, is_previous_commit) = ([stored, stored2], continues && is_commit);
    }
    let damaged = first_bad.filter(|_| synced_commits > 0);
    let damage = damaged.map(|frame| WalDamage::Frame { frame, synced_commits });
    Ok(WalScan { commits, damage, salts: header.salts })
}

impl WalHeader {
    /// The header, or `None` where SQLite would ignore the file.
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        const MAGIC: u32 = 0x377f_0682;
        let [magic, _, page_bytes, _, salt, salt2, stored, stored2] = words(bytes);
        let has_big_endian_checksums = magic & 1 == 1;
        let checksum = extend_checksum(has_big_endian_checksums, [0, 0], &bytes[..24]);
        let is_valid = magic & !1 == MAGIC
            && checksum == [stored, stored2]
            && page_bytes.is_power_of_two()
            && (512..=65_536).contains(&page_bytes);
        let page_bytes = page_bytes as usize;
        is_valid.then_some(Self { page_bytes, has_big_endian_checksums, salts: [salt, salt2], checksum })
    }

    /// The checksum of a frame behind one with the checksum `previous`.
    fn frame_checksum(&self, previous: [u32; 2], frame: &[u8]) -> [u32; 2] {
        let page_and_size = extend_checksum(self.has_big_endian_checksums, previous, &frame[..8]);
        extend_checksum(self.has_big_endian_checksums, page_and_size, &frame[FRAME_HEADER_BYTES..])
    }
}

fn extend_checksum(is_big_endian: bool, [mut first, mut second]: [u32; 2], bytes: &[u8]) -> [u32; 2] {
    for &[a, b, c, d, e, f, g, h] in bytes.as_chunks().0 {
        let read = if is_big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        first = first.wrapping_add(read([a, b, c, d])).wrapping_add(second);
        second = second.wrapping_add(read([e, f, g, h])).wrapping_add(first);
    }
    [first, second]
}

/// The first big-endian words, as headers have them. Missing ones are 0.
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut chunks = bytes.as_chunks().0.iter();
    std::array::from_fn(|_| chunks.next().map_or(0, |word| u32::from_be_bytes(*word)))
}

/// Fills the buffer; returns whether there were enough bytes.
fn fill(wal: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<bool> {
    match wal.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::settings;
    use crate::options::WriterMode;

    const FRAME: usize = FRAME_HEADER_BYTES + 4_096;

    /// The WAL of a database with 20 commits, of more than one frame each.
    fn wal() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(settings::FILE);
        let sql = settings::open(&path).unwrap();
        settings::for_writing(&sql, 2_048, WriterMode::Inline).unwrap();
        sql.execute_batch("CREATE TABLE t (x BLOB)").unwrap();
        for _ in 0..19 {
            sql.execute_batch("INSERT INTO t VALUES (randomblob(9000))").unwrap();
        }
        std::fs::read(folder.path().join("posthaste.db-wal")).unwrap()
    }

    fn scan_bytes(bytes: &[u8]) -> WalScan {
        scan(bytes).unwrap()
    }

    fn frames(wal: &[u8]) -> usize {
        (wal.len() - HEADER_BYTES) / FRAME
    }

    /// The frames that end a commit, from 0.
    fn commit_frames(wal: &[u8]) -> Vec<usize> {
        let is_commit = |frame: &usize| words::<2>(&wal[HEADER_BYTES + frame * FRAME..])[1] != 0;
        (0..frames(wal)).filter(is_commit).collect()
    }

    #[test]
    fn complete_log_and_every_cut_one_are_not_damaged() {
        let wal = wal();

        assert_eq!((scan_bytes(&wal).commits, scan_bytes(&wal).damage), (20, None));
        for length in (0..wal.len()).step_by(777) {
            let scan = scan_bytes(&wal[..length]);
            assert!(scan.damage.is_none() && scan.commits < 20, "{length} bytes: {scan:?}");
        }
    }

    #[test]
    fn flipped_byte_before_a_synced_commit_is_damage() {
        let wal = wal();
        let ends = commit_frames(&wal);
        let last_but_one = ends[ends.len() - 2];

        for frame in 0..frames(&wal) {
            for offset in [3, 6, 10, 17, 1_000] {
                let mut flipped = wal.clone();
                flipped[HEADER_BYTES + frame * FRAME + offset] ^= 0x40;
                let found = scan_bytes(&flipped);
                let is_found =
                    matches!(found.damage, Some(WalDamage::Frame { frame: number, .. }) if number == frame as u64 + 1);
                assert!(is_found || frame + 1 >= last_but_one, "frame {frame}, byte {offset}: {found:?}");
                assert!(!is_found || frame < last_but_one, "a torn last commit is not damage: frame {frame}");
            }
        }
    }

    #[test]
    fn damaged_header_is_damage_only_with_frames_behind_it() {
        let mut wal = wal();
        wal[..HEADER_BYTES].fill(b'x');

        assert_eq!(scan_bytes(&wal).damage, Some(WalDamage::Header));
        assert_eq!(scan_bytes(&wal[..HEADER_BYTES]).damage, None);
        assert_eq!(scan_bytes(b"x").damage, None);
    }

    #[test]
    fn commits_of_an_earlier_generation_are_not_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(settings::FILE);
        let sql = settings::open(&path).unwrap();
        settings::for_writing(&sql, 2_048, WriterMode::Inline).unwrap();
        sql.execute_batch("CREATE TABLE t (x BLOB)").unwrap();
        for _ in 0..9 {
            sql.execute_batch("INSERT INTO t VALUES (randomblob(9000))").unwrap();
        }
        settings::restart_wal(&sql, std::time::Duration::from_secs(5)).unwrap();
        sql.execute_batch("INSERT INTO t VALUES (x'00')").unwrap();

        let found = scan_bytes(&std::fs::read(folder.path().join("posthaste.db-wal")).unwrap());

        assert_eq!((found.commits, found.damage), (1, None));
    }

    /// A commit that fails when it is synced is rolled back; a shorter one overwrites its first frames.
    #[test]
    fn commits_that_failed_behind_the_end_are_not_damage() {
        let wal = wal();
        let ends = commit_frames(&wal);
        // The log ends with the fourth commit. Behind it lie the ends of three commits that failed, each with another checksum before it.
        let mut end = wal[..HEADER_BYTES + (ends[3] + 1) * FRAME].to_vec();
        for failed in [6, 9, 12] {
            let last = &wal[HEADER_BYTES + (ends[failed] - 1) * FRAME..HEADER_BYTES + (ends[failed] + 1) * FRAME];
            end.extend_from_slice(last);
        }

        let found = scan_bytes(&end);

        assert_eq!((found.commits, found.damage), (4, None));
    }

    #[test]
    fn big_endian_checksums_are_read() {
        // Both orders are in use: the one of the processor that wrote the file.
        assert_eq!(extend_checksum(true, [0, 0], &[0, 0, 0, 1, 0, 0, 0, 2]), [1, 3]);
        assert_eq!(extend_checksum(false, [0, 0], &[1, 0, 0, 0, 2, 0, 0, 0]), [1, 3]);
    }
}
