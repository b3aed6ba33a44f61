//! Where in a text a long pattern may begin, told by samples: one gram in each stride is looked up among the grams of all patterns'
//! beginnings. No look-up waits for the one before, and most bytes of a text are never read.
use zeroize::Zeroizing;

/// Bytes of a gram: so many that hardly one of a random value stands in other text.
const GRAM: usize = 8;
/// A shorter pattern has too few grams.
pub(super) const SHORTEST: usize = 2 * GRAM;
/// Bytes of a pattern's beginning that are looked at. More would make longer strides, but more grams than a cache holds.
const WIDEST: usize = 32;
/// Bits of the sieve for each gram, of which it sets two: one or two of a hundred other grams pass.
const BITS_PER_GRAM: usize = 16;
/// Words of the sieve, as powers of two: 1 KiB for a few secrets, at most 1 MiB, half of what a core's second cache holds today.
const SIEVE: [u32; 2] = [7, 17];

/// The grams of many patterns, by hashes that are wiped in the end.
pub(super) struct Sampled {
    /// From one sample to the next: every pattern's beginning has a sample in it, wherever it stands.
    stride: usize,
    /// Two bits in one word for each gram; in a cache where `slots` is not.
    sieve: Zeroizing<Vec<u64>>,
    /// By a gram's hash, and behind where that is taken: 32 bits of the hash, and where in a pattern it stands, a bit for each place.
    slots: Zeroizing<Vec<u64>>,
}

impl Sampled {
    /// Over these patterns, none of which is shorter than [`SHORTEST`]; none where there is no pattern.
    pub(super) fn new<'a>(patterns: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Self> {
        let window = patterns.clone().map(<[u8]>::len).min()?.min(WIDEST);
        let stride = window - GRAM + 1;
        let mut grams = Zeroizing::new(Vec::new());
        for pattern in patterns {
            // Forms of a value that begin with one character or another have the same grams behind it.
            let first = usize::from(pattern.len() > window);
            for (at, gram) in pattern.windows(GRAM).enumerate().skip(first).take(stride) {
                grams.extend(gram.first_chunk().map(|gram| (hashed(*gram), 1_u64 << at)));
            }
        }
        grams.sort_unstable();
        grams.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1 |= later.1;
            }
            same
        });
        let sieve_bits = (grams.len() * BITS_PER_GRAM / 64).max(1).ilog2() + 1;
        let sieve_bits = sieve_bits.clamp(SIEVE[0], SIEVE[1]);
        let mut made = Self {
            stride,
            sieve: Zeroizing::new(vec![0; 1 << sieve_bits]),
            slots: Zeroizing::new(vec![0; (grams.len() * 2).next_power_of_two()]),
        };
        for (hash, places) in grams.iter() {
            made.insert(*hash, *places);
        }
        Some(made)
    }

    fn insert(&mut self, hash: u64, places: u64) {
        let word = self.word(hash);
        for bit in bits(hash) {
            self.sieve[word] |= 1 << bit;
        }
        // Two grams that are told apart by nothing share a slot, so that none is overlooked.
        let slot = self.slot(hash);
        self.slots[slot] |= check(hash) | places;
    }

    /// The first position from `at` on at which `is_match` holds, which is asked only where a pattern may begin.
    pub(super) fn first(&self, text: &[u8], at: usize, is_match: impl Fn(usize) -> bool) -> Option<usize> {
        let (mut best, mut here) = (None, at);
        while let Some(hash) = self.next(text, &mut here) {
            // What begins before the best has its last sample before this one.
            if best.is_some_and(|best| best + self.stride < here) {
                break;
            }
            for begin in self.begins(hash, here) {
                if begin >= at && best.is_none_or(|best| begin < best) && is_match(begin) {
                    best = Some(begin);
                }
            }
            here += self.stride;
        }
        best
    }

    /// The hash of the next sample that may be a gram of ours, from one `at` on, which is moved there.
    #[inline]
    fn next(&self, text: &[u8], at: &mut usize) -> Option<u64> {
        let samples = text.get(*at..)?.chunks(self.stride);
        samples.enumerate().find_map(|(index, sample)| {
            let hash = hashed(*sample.first_chunk()?);
            self.sifts(hash).then(|| {
                *at += index * self.stride;
                hash
            })
        })
    }

    /// Whether a gram may be one of ours.
    #[inline]
    fn sifts(&self, hash: u64) -> bool {
        let word = self.sieve[self.word(hash)];
        let [one, other] = bits(hash);
        word >> one & word >> other & 1 == 1
    }

    /// Where a pattern may begin that has this gram `here`.
    #[cold]
    fn begins(&self, hash: u64, here: usize) -> impl Iterator<Item = usize> {
        let slot = self.slot(hash);
        let mut places = self.slots[slot] & !CHECK;
        std::iter::from_fn(move || {
            let place = places.trailing_zeros();
            // The lowest bit is taken off.
            places &= places.checked_sub(1)?;
            here.checked_sub(place as usize)
        })
    }

    /// The word of the sieve that knows a gram.
    #[inline]
    fn word(&self, hash: u64) -> usize {
        (hash >> 12) as usize & (self.sieve.len() - 1)
    }

    /// The slot of a gram, or the empty one where it would be.
    fn slot(&self, hash: u64) -> usize {
        let last = self.slots.len() - 1;
        let mut slot = (hash >> 12) as usize & last;
        while self.slots[slot] != 0 && self.slots[slot] & CHECK != check(hash) {
            slot = (slot + 1) & last;
        }
        slot
    }
}

/// The bits of a gram in its word of the sieve.
#[inline]
fn bits(hash: u64) -> [u64; 2] {
    [hash & 63, hash >> 6 & 63]
}

/// The half of a slot that tells grams apart; the other one has a bit for each place.
const CHECK: u64 = !0 << 32;

fn check(hash: u64) -> u64 {
    hash & CHECK
}

/// A gram's hash: both halves of a product, so that every bit depends on every byte.
#[inline]
fn hashed(gram: [u8; GRAM]) -> u64 {
    let product = u128::from(u64::from_le_bytes(gram) ^ 0x2d35_8dcc_aa6c_78a5) * 0x8bb8_4b93_962e_acc9;
    (product >> 64) as u64 ^ product as u64
}
