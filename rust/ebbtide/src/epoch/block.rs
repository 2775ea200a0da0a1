// SPDX-License-Identifier: MIT OR Apache-2.0
//! What pointers lead to, and how an address and a tag share a word: the tag is in the low bits that
//! the alignment leaves zero.

use std::alloc::{handle_alloc_error, Layout};
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::slice;

use crate::sys;

/// What an [`Atomic`](super::Atomic), [`Owned`](super::Owned) or [`Shared`](super::Shared) can lead
/// to: any sized type, and slices `[MaybeUninit<T>]`, whose length is kept before their elements.
///
/// ```
/// use ebbtide::epoch::Owned;
/// use std::mem::MaybeUninit;
///
/// let buffer = Owned::<[MaybeUninit<u32>]>::init(10); // by its length
/// assert_eq!(buffer.len(), 10);
/// ```
pub trait Pointable {
    /// The alignment of what the pointer leads to, a power of two. Tags have its zero bits.
    const ALIGN: usize;

    /// What a new object is made from.
    type Init;

    /// Whether to drop an object is no more than to free its block of Ebbtide's heap.
    #[doc(hidden)]
    const IS_PLAIN_BLOCK: bool = false;

    /// Makes an object; the address that comes back is a multiple of [`ALIGN`](Self::ALIGN).
    ///
    /// # Safety
    /// The address is to be given to [`drop`](Self::drop) once, or leaks.
    unsafe fn init(init: Self::Init) -> usize;

    /// The object at an address.
    ///
    /// # Safety
    /// `ptr` comes from [`init`](Self::init), has not been dropped, and is not written to while the
    /// reference lives.
    unsafe fn deref<'a>(ptr: usize) -> &'a Self;

    /// The object at an address, to be changed.
    ///
    /// # Safety
    /// As [`deref`](Self::deref), and nobody else uses it while the reference lives.
    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut Self;

    /// Drops the object and frees its memory.
    ///
    /// # Safety
    /// `ptr` comes from [`init`](Self::init) and is used by nobody any more.
    unsafe fn drop(ptr: usize);
}

/// A pointer that can be stored in an [`Atomic`](super::Atomic): [`Owned`](super::Owned) or
/// [`Shared`](super::Shared).
pub trait Pointer<T: ?Sized + Pointable> {
    /// The address and the tag in one word.
    fn into_usize(self) -> usize;

    /// The pointer back from the word.
    ///
    /// # Safety
    /// `data` comes from [`into_usize`](Self::into_usize) of the same type. For an
    /// [`Owned`](super::Owned), one word gives one pointer back.
    unsafe fn from_usize(data: usize) -> Self;
}

/// A block for the layout. Ends as failed allocations do when memory is refused.
fn allocate(layout: Layout) -> *mut u8 {
    let block = crate::alloc::allocate(layout);
    if block.is_null() {
        handle_alloc_error(layout);
    }
    block
}

/// # Safety
/// `block` comes from [`allocate`] and is used by nobody any more.
unsafe fn free(block: *mut u8) {
    // SAFETY: the caller's word.
    unsafe { sys::ebb_free(block.cast()) }
}

/// Room for a `T`: a block, or for a type without size an address that is none, as in a `Box`.
pub(super) fn room<T>() -> *mut T {
    if mem::size_of::<T>() == 0 {
        return NonNull::dangling().as_ptr();
    }
    allocate(Layout::new::<T>()).cast()
}

/// # Safety
/// `at` comes from [`room`] and is used by nobody any more.
pub(super) unsafe fn leave_room<T>(at: *mut T) {
    if mem::size_of::<T>() != 0 {
        // SAFETY: the caller's word.
        unsafe { free(at.cast()) }
    }
}

/// The object, moved to room of its own. It may be larger than the stack, so it makes no stop there.
pub(super) fn from_box<T>(object: Box<T>) -> usize {
    let at = room::<T>();
    let from = Box::into_raw(object);
    // SAFETY: the object moves from one room to the other, and the box goes without it.
    unsafe {
        ptr::copy_nonoverlapping(from, at, 1);
        drop(Box::from_raw(from.cast::<ManuallyDrop<T>>()));
    }
    at as usize
}

/// The object, moved to a `Box`, as in [`from_box`].
///
/// # Safety
/// `at` is an object in [`room`] that nobody else uses, and that is the box's from now on.
pub(super) unsafe fn to_box<T>(at: *mut T) -> Box<T> {
    let layout = Layout::new::<T>();
    // SAFETY: the size is not 0; then the caller's word.
    unsafe {
        let to = match layout.size() {
            0 => at,
            _ => std::alloc::alloc(layout).cast(),
        };
        if to.is_null() {
            handle_alloc_error(layout);
        }
        ptr::copy_nonoverlapping(at, to, 1);
        leave_room(at);
        Box::from_raw(to)
    }
}

impl<T> Pointable for T {
    const ALIGN: usize = mem::align_of::<T>();
    const IS_PLAIN_BLOCK: bool = !mem::needs_drop::<T>() && mem::size_of::<T>() != 0;

    type Init = T;

    unsafe fn init(init: T) -> usize {
        let at = room::<T>();
        // SAFETY: fresh room for a T.
        unsafe { at.write(init) };
        at as usize
    }

    unsafe fn deref<'a>(ptr: usize) -> &'a T {
        // SAFETY: the caller's word.
        unsafe { &*(ptr as *const T) }
    }

    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut T {
        // SAFETY: the caller's word.
        unsafe { &mut *(ptr as *mut T) }
    }

    unsafe fn drop(ptr: usize) {
        let object = ptr as *mut T;
        // SAFETY: the caller's word.
        unsafe {
            object.drop_in_place();
            leave_room(object);
        }
    }
}

/// What precedes a slice's elements.
#[repr(C)]
struct Slice<T> {
    length: usize,
    elements: [MaybeUninit<T>; 0],
}

impl<T> Slice<T> {
    fn layout(length: usize) -> Layout {
        Layout::array::<MaybeUninit<T>>(length)
            .and_then(|elements| Layout::new::<Self>().extend(elements))
            .expect("a slice that is larger than the address space")
            .0
    }

    /// # Safety
    /// As [`Pointable::deref`].
    unsafe fn parts(at: usize) -> (*mut MaybeUninit<T>, usize) {
        let slice = at as *mut Self;
        // SAFETY: the caller's word. No reference is made, whose reach would end with the header.
        unsafe { (ptr::addr_of_mut!((*slice).elements).cast(), (*slice).length) }
    }
}

impl<T> Pointable for [MaybeUninit<T>] {
    const ALIGN: usize = mem::align_of::<Slice<T>>();
    const IS_PLAIN_BLOCK: bool = true;

    type Init = usize;

    unsafe fn init(length: usize) -> usize {
        let block = allocate(Slice::<T>::layout(length)).cast::<Slice<T>>();
        // SAFETY: a fresh block that has room for the header and the elements.
        unsafe { ptr::addr_of_mut!((*block).length).write(length) };
        block as usize
    }

    unsafe fn deref<'a>(ptr: usize) -> &'a [MaybeUninit<T>] {
        // SAFETY: the caller's word.
        unsafe {
            let (elements, length) = Slice::<T>::parts(ptr);
            slice::from_raw_parts(elements, length)
        }
    }

    unsafe fn deref_mut<'a>(ptr: usize) -> &'a mut [MaybeUninit<T>] {
        // SAFETY: the caller's word.
        unsafe {
            let (elements, length) = Slice::<T>::parts(ptr);
            slice::from_raw_parts_mut(elements, length)
        }
    }

    unsafe fn drop(ptr: usize) {
        // SAFETY: the caller's word; MaybeUninit has no destructor.
        unsafe { free(ptr as *mut u8) }
    }
}

/// The bits of a word that hold the tag.
pub(super) const fn tag_mask<T: ?Sized + Pointable>() -> usize {
    T::ALIGN - 1
}

/// A word of an address and the part of `tag` that fits.
pub(super) fn with_tag<T: ?Sized + Pointable>(data: usize, tag: usize) -> usize {
    (data & !tag_mask::<T>()) | (tag & tag_mask::<T>())
}

pub(super) fn address_of<T: ?Sized + Pointable>(data: usize) -> usize {
    data & !tag_mask::<T>()
}

pub(super) fn tag_of<T: ?Sized + Pointable>(data: usize) -> usize {
    data & tag_mask::<T>()
}

/// The word of a raw pointer, which must be a multiple of the alignment.
pub(super) fn from_raw<T>(raw: *const T) -> usize {
    let data = raw as usize;
    assert_eq!(tag_of::<T>(data), 0, "unaligned pointer");
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_fit_the_alignment() {
        assert_eq!(tag_mask::<u8>(), 0);
        assert_eq!(tag_mask::<u64>(), 7);
        assert_eq!(with_tag::<u64>(0x1003, 13), 0x1005);
        assert_eq!(address_of::<u64>(0x1005), 0x1000);
        assert_eq!(tag_of::<u64>(0x1005), 5);
    }

    #[test]
    fn a_box_of_a_large_object_makes_no_stop_on_the_stack() {
        type Large = [u8; 8 << 20]; // twice a test thread's stack
        let mut large = vec![1_u8; mem::size_of::<Large>()].into_boxed_slice();
        large[9] = 7;
        // SAFETY: of the size that the array has, and alignment 1.
        let large = unsafe { Box::from_raw(Box::into_raw(large).cast::<Large>()) };
        let at = from_box(large) as *mut Large;
        // SAFETY: made above, and nobody else's.
        assert_eq!(unsafe { to_box(at) }[9], 7);
    }

    #[test]
    fn slices_keep_the_stricter_alignment() {
        assert_eq!(<[MaybeUninit<u8>]>::ALIGN, mem::align_of::<usize>());
        assert_eq!(<[MaybeUninit<Line>]>::ALIGN, 64);
    }

    #[repr(align(64))]
    struct Line(#[allow(dead_code)] u8);

    #[test]
    #[should_panic(expected = "unaligned pointer")]
    fn refuses_an_unaligned_pointer() {
        let words = [0_u64; 2];
        from_raw(words.as_ptr().cast::<u8>().wrapping_add(1).cast::<u64>());
    }
}
