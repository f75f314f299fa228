//! The predefined datatypes of the ABI.

/// Class of a predefined datatype, which determines its operations (MPI-5.0 §6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// C and Fortran integers.
    Integer,
    /// `MPI_OFFSET` and `MPI_COUNT`: integers of several languages.
    Multi,
    /// Floating point.
    Float,
    /// Complex.
    Complex,
    /// Truth values.
    Logical,
    /// Untyped bytes.
    Byte,
    /// Characters. Those of one byte are combined as integers.
    Character,
    /// Value and index, for `MPI_MINLOC` and `MPI_MAXLOC`.
    Pair,
    /// Packed data.
    Packed,
}

/// Representation of an element in memory. `Long`, `UnsignedLong` and `Wchar` equal `I64`, `U64`
/// and `I32`, but have other widths in external data. C's `char` and `long double` are those of
/// this architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it: kind and width in bits of each part")]
pub(crate) enum Element {
    I8,
    U8,
    Char,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    Long,
    UnsignedLong,
    Wchar,
    I128,
    F16,
    F32,
    F64,
    LongDouble,
    F128,
    C16,
    C32,
    C64,
    LongDoubleComplex,
    C128,
    F32I32,
    F64I32,
    LongI32,
    I32I32,
    I16I32,
    LongDoubleI32,
    F32F32,
    F64F64,
    Bytes1,
}

/// Places of an element's basic elements, in bytes, with the padding of this ABI's C compilers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElementLayout {
    value: Element,
    /// Second member of a pair, with its offset.
    index: Option<(isize, Element)>,
    /// Bytes of data.
    size: usize,
    pub extent: isize,
    pub alignment: usize,
}

impl ElementLayout {
    const fn basic(element: Element, size: usize, alignment: usize) -> Self {
        Self { value: element, index: None, size, extent: size as isize, alignment }
    }

    /// Makes a pair, which is a struct of two (MPI-5.0 §6.9.4).
    const fn pair(value: Element, index: Element) -> Self {
        let (first, second) = (value.shape(), index.shape());
        let is_larger = first.alignment > second.alignment;
        let alignment = if is_larger { first.alignment } else { second.alignment };
        let offset = first.size.next_multiple_of(second.alignment);
        let extent = (offset + second.size).next_multiple_of(alignment) as isize;
        let size = first.size + second.size;
        Self { value, index: Some((offset as isize, index)), size, extent, alignment }
    }

    /// Returns the basic elements with their offsets.
    pub fn parts(self) -> impl Iterator<Item = (isize, Element)> {
        std::iter::once((0, self.value)).chain(self.index)
    }
}

impl Element {
    /// Returns the places of the element's parts in memory.
    pub const fn shape(self) -> ElementLayout {
        match self {
            Self::I8 | Self::U8 | Self::Char | Self::Bytes1 => ElementLayout::basic(self, 1, 1),
            Self::I16 | Self::U16 | Self::F16 => ElementLayout::basic(self, 2, 2),
            Self::I32 | Self::U32 | Self::Wchar | Self::F32 => ElementLayout::basic(self, 4, 4),
            Self::C16 => ElementLayout::basic(self, 4, 2),
            Self::I64 | Self::U64 | Self::Long | Self::UnsignedLong | Self::F64 => {
                ElementLayout::basic(self, 8, 8)
            }
            Self::C32 => ElementLayout::basic(self, 8, 4),
            Self::I128 | Self::LongDouble | Self::F128 => ElementLayout::basic(self, 16, 16),
            Self::C64 => ElementLayout::basic(self, 16, 8),
            Self::LongDoubleComplex | Self::C128 => ElementLayout::basic(self, 32, 16),
            Self::F32I32 => ElementLayout::pair(Self::F32, Self::I32),
            Self::F64I32 => ElementLayout::pair(Self::F64, Self::I32),
            Self::LongI32 => ElementLayout::pair(Self::Long, Self::I32),
            Self::I32I32 => ElementLayout::pair(Self::I32, Self::I32),
            Self::I16I32 => ElementLayout::pair(Self::I16, Self::I32),
            Self::LongDoubleI32 => ElementLayout::pair(Self::LongDouble, Self::I32),
            Self::F32F32 => ElementLayout::pair(Self::F32, Self::F32),
            Self::F64F64 => ElementLayout::pair(Self::F64, Self::F64),
        }
    }

    /// Bytes of data.
    pub fn size(self) -> usize {
        self.shape().size
    }

    /// Bytes of data if elements that follow each other have no gaps, or 0.
    const fn gapless_size(self) -> u8 {
        let shape = self.shape();
        if shape.size as isize == shape.extent { shape.size as u8 } else { 0 }
    }
}

macro_rules! builtins {
    ($($variant:ident $name:literal $value:literal $class:ident $element:ident,)*) => {
        /// A predefined datatype.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Builtin {
            $(#[doc = concat!("`", $name, "`.")] $variant = $value,)*
        }

        impl Builtin {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Name of the constant.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Class, which determines the operations.
            #[inline]
            pub const fn class(self) -> Class {
                KINDS[self as usize % KINDS.len()].0
            }

            #[inline]
            pub(crate) const fn element(self) -> Element {
                KINDS[self as usize % KINDS.len()].1
            }
        }

        /// Class and element of each type, by the last eight bits of its constant: reductions look
        /// it up at every call.
        const KINDS: [(Class, Element); 256] = {
            let mut kinds = [(Class::Packed, Element::Bytes1); 256];
            $(kinds[$value % 256] = (Class::$class, Element::$element);)*
            kinds
        };

        /// Each type, and its [`Builtin::gapless_size`], by the last eight bits of its constant.
        static NUMBERED: [Option<Builtin>; 256] = {
            let mut numbered = [None; 256];
            $(numbered[$value % 256] = Some(Builtin::$variant);)*
            numbered
        };
        static GAPLESS_SIZES: [u8; 256] = {
            let mut sizes = [0; 256];
            $(sizes[$value % 256] = Builtin::$variant.element().gapless_size();)*
            sizes
        };
    };
}

impl Builtin {
    /// Value of the ABI's constant.
    pub const fn abi(self) -> u16 {
        self as u16
    }

    /// The type of one of the ABI's constants.
    #[inline]
    pub fn numbered(abi: u64) -> Option<Self> {
        if abi & !0xff == 0x200 { NUMBERED[(abi & 0xff) as usize] } else { None }
    }

    /// Size in bytes of an element of the type of an ABI constant, if there is one and elements that follow each other
    /// have no gaps; else 0.
    #[inline]
    pub fn gapless_size(abi: u64) -> usize {
        if abi & !0xff == 0x200 { usize::from(GAPLESS_SIZES[(abi & 0xff) as usize]) } else { 0 }
    }
}

builtins! {
    Aint "MPI_AINT" 0x201 Integer I64,
    Count "MPI_COUNT" 0x202 Multi I64,
    Offset "MPI_OFFSET" 0x203 Multi I64,
    Packed "MPI_PACKED" 0x207 Packed Bytes1,
    Short "MPI_SHORT" 0x208 Integer I16,
    Int "MPI_INT" 0x209 Integer I32,
    Long "MPI_LONG" 0x20a Integer Long,
    LongLong "MPI_LONG_LONG" 0x20b Integer I64,
    UnsignedShort "MPI_UNSIGNED_SHORT" 0x20c Integer U16,
    Unsigned "MPI_UNSIGNED" 0x20d Integer U32,
    UnsignedLong "MPI_UNSIGNED_LONG" 0x20e Integer UnsignedLong,
    UnsignedLongLong "MPI_UNSIGNED_LONG_LONG" 0x20f Integer U64,
    Float "MPI_FLOAT" 0x210 Float F32,
    CFloatComplex "MPI_C_FLOAT_COMPLEX" 0x212 Complex C32,
    CxxFloatComplex "MPI_CXX_FLOAT_COMPLEX" 0x213 Complex C32,
    Double "MPI_DOUBLE" 0x214 Float F64,
    CDoubleComplex "MPI_C_DOUBLE_COMPLEX" 0x216 Complex C64,
    CxxDoubleComplex "MPI_CXX_DOUBLE_COMPLEX" 0x217 Complex C64,
    Logical "MPI_LOGICAL" 0x218 Logical I32,
    Integer "MPI_INTEGER" 0x219 Integer I32,
    Real "MPI_REAL" 0x21a Float F32,
    Complex "MPI_COMPLEX" 0x21b Complex C32,
    DoublePrecision "MPI_DOUBLE_PRECISION" 0x21c Float F64,
    DoubleComplex "MPI_DOUBLE_COMPLEX" 0x21d Complex C64,
    Character "MPI_CHARACTER" 0x21e Character U8,
    LongDouble "MPI_LONG_DOUBLE" 0x220 Float LongDouble,
    CLongDoubleComplex "MPI_C_LONG_DOUBLE_COMPLEX" 0x224 Complex LongDoubleComplex,
    CxxLongDoubleComplex "MPI_CXX_LONG_DOUBLE_COMPLEX" 0x225 Complex LongDoubleComplex,
    FloatInt "MPI_FLOAT_INT" 0x228 Pair F32I32,
    DoubleInt "MPI_DOUBLE_INT" 0x229 Pair F64I32,
    LongInt "MPI_LONG_INT" 0x22a Pair LongI32,
    TwoInt "MPI_2INT" 0x22b Pair I32I32,
    ShortInt "MPI_SHORT_INT" 0x22c Pair I16I32,
    LongDoubleInt "MPI_LONG_DOUBLE_INT" 0x22d Pair LongDoubleI32,
    TwoReal "MPI_2REAL" 0x230 Pair F32F32,
    TwoDoublePrecision "MPI_2DOUBLE_PRECISION" 0x231 Pair F64F64,
    TwoInteger "MPI_2INTEGER" 0x232 Pair I32I32,
    CBool "MPI_C_BOOL" 0x238 Logical U8,
    CxxBool "MPI_CXX_BOOL" 0x239 Logical U8,
    Wchar "MPI_WCHAR" 0x23c Character Wchar,
    Int8T "MPI_INT8_T" 0x240 Integer I8,
    Uint8T "MPI_UINT8_T" 0x241 Integer U8,
    Char "MPI_CHAR" 0x243 Character Char,
    SignedChar "MPI_SIGNED_CHAR" 0x244 Integer I8,
    UnsignedChar "MPI_UNSIGNED_CHAR" 0x245 Integer U8,
    Byte "MPI_BYTE" 0x247 Byte U8,
    Int16T "MPI_INT16_T" 0x248 Integer I16,
    Uint16T "MPI_UINT16_T" 0x249 Integer U16,
    Int32T "MPI_INT32_T" 0x250 Integer I32,
    Uint32T "MPI_UINT32_T" 0x251 Integer U32,
    Int64T "MPI_INT64_T" 0x258 Integer I64,
    Uint64T "MPI_UINT64_T" 0x259 Integer U64,
    Logical1 "MPI_LOGICAL1" 0x2c0 Logical I8,
    Integer1 "MPI_INTEGER1" 0x2c1 Integer I8,
    Logical2 "MPI_LOGICAL2" 0x2c8 Logical I16,
    Integer2 "MPI_INTEGER2" 0x2c9 Integer I16,
    Real2 "MPI_REAL2" 0x2ca Float F16,
    Logical4 "MPI_LOGICAL4" 0x2d0 Logical I32,
    Integer4 "MPI_INTEGER4" 0x2d1 Integer I32,
    Real4 "MPI_REAL4" 0x2d2 Float F32,
    Complex4 "MPI_COMPLEX4" 0x2d3 Complex C16,
    Logical8 "MPI_LOGICAL8" 0x2d8 Logical I64,
    Integer8 "MPI_INTEGER8" 0x2d9 Integer I64,
    Real8 "MPI_REAL8" 0x2da Float F64,
    Complex8 "MPI_COMPLEX8" 0x2db Complex C32,
    Logical16 "MPI_LOGICAL16" 0x2e0 Logical I128,
    Integer16 "MPI_INTEGER16" 0x2e1 Integer I128,
    Real16 "MPI_REAL16" 0x2e2 Float F128,
    Complex16 "MPI_COMPLEX16" 0x2e3 Complex C64,
    Complex32 "MPI_COMPLEX32" 0x2eb Complex C128,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Datatype;

    #[test]
    fn constants_lead_to_their_types_and_sizes() {
        for abi in 0..0x1000 {
            let known = Builtin::ALL.iter().copied().find(|one| u64::from(one.abi()) == abi);
            assert_eq!(Builtin::numbered(abi), known);
            let layout = known.map(|builtin| Datatype::builtin(builtin).layout().clone());
            let gapless = layout.filter(|layout| layout.is_contiguous());
            let size = gapless.map_or(0, |layout| layout.size());
            assert_eq!(Builtin::gapless_size(abi), size, "{known:?}");
        }
    }
}
