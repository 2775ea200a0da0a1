// SPDX-License-Identifier: MIT OR Apache-2.0
//! Taking a result out of a region that is about to end.

use super::own::Region;
use super::scope::on_heap;

/// What can be copied as it is: values that are [`Copy`], slices of such, and text. References in it
/// stay what they were, so one into the region that is about to end is an error of compilation.
pub trait Promote: copied::Copied {}

impl<T: copied::Copied + ?Sized> Promote for T {}

mod copied {
    use super::Region;

    /// What was allocated, as a result that is not mistaken for a borrow of the region's own state.
    pub struct Held<'r, T: ?Sized>(pub &'r mut T);

    pub trait Copied {
        fn copy_to<'r>(&self, region: &'r Region<'_>) -> Held<'r, Self>;
        fn copy_to_box(&self) -> Box<Self>;
    }

    impl<T: Copy> Copied for T {
        fn copy_to<'r>(&self, region: &'r Region<'_>) -> Held<'r, T> {
            Held(region.alloc(*self))
        }

        fn copy_to_box(&self) -> Box<T> {
            Box::new(*self)
        }
    }

    impl<T: Copy> Copied for [T] {
        fn copy_to<'r>(&self, region: &'r Region<'_>) -> Held<'r, [T]> {
            Held(region.alloc_slice_copy(self))
        }

        fn copy_to_box(&self) -> Box<[T]> {
            self.into()
        }
    }

    impl Copied for str {
        fn copy_to<'r>(&self, region: &'r Region<'_>) -> Held<'r, str> {
            Held(region.alloc_str(self))
        }

        fn copy_to_box(&self) -> Box<str> {
            self.into()
        }
    }
}

impl Region<'_> {
    /// A copy in this region of a value that is in another.
    ///
    /// ```
    /// use ebbtide::region::Region;
    ///
    /// let session = Region::open();
    /// let request = session.child();
    /// let name = request.alloc_str("ebb");
    /// let kept = session.promote(&*name);
    /// drop(request);
    /// assert_eq!(kept, "ebb");
    /// ```
    ///
    /// ```compile_fail,E0505
    /// use ebbtide::region::Region;
    ///
    /// let session = Region::open();
    /// let request = Region::open();
    /// let pair = request.alloc((1, request.alloc_str("ebb") as &str));
    /// let kept = session.promote(&*pair); // its second half is in the request still
    /// drop(request);
    /// assert_eq!(kept.1, "ebb");
    /// ```
    pub fn promote<T: Promote + ?Sized>(&self, value: &T) -> &mut T {
        value.copy_to(self).0
    }
}

/// A copy of the value in the global allocator's memory, outside of all scopes.
///
/// ```
/// use ebbtide::region::{promote_to_heap, Region};
///
/// let region = Region::open();
/// let kept = promote_to_heap(&*region.alloc_slice_copy(&[1, 2, 3]));
/// drop(region);
/// assert_eq!(*kept, [1, 2, 3]);
/// ```
pub fn promote_to_heap<T: Promote + ?Sized>(value: &T) -> Box<T> {
    on_heap(|| value.copy_to_box())
}
