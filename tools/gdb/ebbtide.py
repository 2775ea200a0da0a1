# SPDX-License-Identifier: MIT OR Apache-2.0
"""gdb: what Ebbtide knows of a process or a core. Needs the library's debug information (preset dev).

    (gdb) source tools/gdb/ebbtide.py
    (gdb) ebb block P      what the pointer is: of which slab, sheet or large object, free or not
    (gdb) ebb slab P       the slab of that pointer, or of that header
    (gdb) ebb sheet P      the same of a region
    (gdb) ebb heap         the selected thread's heap: magazines, outbox, what waits
    (gdb) ebb owners       all owners of slabs, and who holds their locks

It only reads memory: it calls nothing in the process, so it works on a core and beside locks that are held.
"""
import gdb

GRANULE_SHIFT, CHUNK_SHIFT, HEADER = 16, 30, 256
ROOM_WORDS = 64  # EBBI_ROOM_WORDS, of each of a granule's three bitmaps
UNIT = 16  # EBBI_UNIT of a sheet
TAG_DOMAIN = 256
STATES = ("none", "free", "slab", "inside", "large", "spare", "heap", "sheet", "quarantine")


def symbol(name):
    try:
        return gdb.parse_and_eval(name)
    except gdb.error as error:
        raise gdb.GdbError(f"{name}: {error}; is the library of this process one with debug information?")


def typed(address, name):
    return gdb.Value(address).cast(gdb.lookup_type(f"struct {name}").pointer())


def tag_of(address):
    """As text; None: outside of the window."""
    window = symbol("ebbi_window")
    granule = (address - int(window["base"])) >> GRANULE_SHIFT
    if not 0 <= granule < int(window["granules"]):
        return None
    try:
        tag = int(window["tags"][granule]["bin"])
    except gdb.MemoryError:
        return "unknown (the table is not in this core)"
    return f"{tag}{' (a domain)' if tag >= TAG_DOMAIN else ''}"


def span_of(address):
    """The header of the span that an address lies in, and the span's start. Inner granules have no headers that
    could be believed, so the chunk's spans are walked."""
    if tag_of(address) is None:
        raise gdb.GdbError(f"{address:#x} lies outside of the window: a huge object, or not Ebbtide's")
    chunk = address >> CHUNK_SHIFT << CHUNK_SHIFT
    try:
        header = typed(chunk, "ebbi_chunk")
        granule, end = int(header["first"]), int(header["committed"])
        wanted = (address - chunk) >> GRANULE_SHIFT
        if wanted < granule:  # a header, or a bitmap
            wanted = (address - chunk) // HEADER
        while granule < end:
            span = typed(chunk + granule * HEADER, "ebbi_span")
            count = max(int(span["granules"]), 1)
            if granule <= wanted < granule + count:
                return span, chunk + (granule << GRANULE_SHIFT)
            granule += count
    except gdb.MemoryError:
        pass
    raise gdb.GdbError(f"{address:#x} lies in no span: in the window, but not handed out")


def bit(words, index):
    return int(words[index // 64]) >> (index % 64) & 1


def popcount(words, count):
    return sum(int(words[w]).bit_count() for w in range(count))


class Prefix(gdb.Command):
    """Ebbtide's memory: ebb block P, ebb slab P, ebb sheet P, ebb heap [ADDRESS], ebb owners."""

    def __init__(self):
        super().__init__("ebb", gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)

    def invoke(self, argument, from_tty):
        print(self.__doc__)


class Command(gdb.Command):
    """One word of `ebb`; what is written after it is an expression."""

    needs_address = True

    def __init__(self, name):
        super().__init__(f"ebb {name}", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)
        self.name = name

    def invoke(self, argument, from_tty):
        try:
            address = int(gdb.parse_and_eval(argument).cast(gdb.lookup_type("unsigned long"))) if argument else None
            if address is None and self.needs_address:
                raise gdb.GdbError(f"ebb {self.name} P")
            for line in self.lines(address):
                print(line)
        except gdb.GdbError:
            raise
        except gdb.error as error:
            raise gdb.GdbError(f"ebb {self.name}: {error}")


def heaps():
    heap = symbol("all_heaps")
    while int(heap) != 0:
        yield heap.dereference()
        heap = heap["next"]


def magazine_blocks(heap, number):
    """The blocks in one magazine or tray, the newest last."""
    magazine = heap["magazines"][number]
    slots, base = int(magazine["slots"]), magazine["base"]
    if slots == 0:
        return []
    top = next((top for _, top in enumerate_array(heap["fast"]["top"])
                if int(base) < int(top) <= int(base) + 8 * slots), base + 1)
    return [int(base[i]) for i in range(1 + int(magazine["stolen"]), (int(top) - int(base)) // 8)]


def holder_of(block, class_number):
    """In whose magazine, tray or outbox a block is; None: in none."""
    first_tray = symbol("ebbi_classes").type.range()[1] + 1
    for heap in heaps():
        if block in magazine_blocks(heap, class_number):
            return f"free, in a magazine of heap {int(heap.address):#x}"
        for number in range(first_tray, heap["magazines"].type.range()[1] + 1):
            if block in magazine_blocks(heap, number):
                return f"freed, in a tray of heap {int(heap.address):#x}"
        if block in (int(heap["outbox"][i]) for i in range(int(heap["outbox_count"]))):
            return f"freed, in the outbox of heap {int(heap.address):#x}"
    return None


def slab_lines(address, span, start):
    slab = span.cast(gdb.lookup_type("struct ebbi_slab").pointer())
    shape = symbol("ebbi_classes")[int(slab["class_number"])]
    words, blocks, size = int(slab["words"]), int(shape["blocks"]), int(shape["size"])
    inline = slab["local_words"].type.range()[1] + 1
    local, remote = slab["local"], slab["local"] + (ROOM_WORDS if words > inline else inline)
    yield (f"slab {int(slab):#x}: {blocks} blocks of {size} bytes from {int(slab['first_block']):#x}, "
           f"span at {start:#x}, owner {int(slab['owner']):#x}")
    yield (f"  {popcount(local, words)} free at the owner (it counts {int(slab['free_count'])}), "
           f"{popcount(remote, words)} freed by others, {blocks - popcount(local, words) - popcount(remote, words)} "
           f"out, magazines included")
    yield (f"  bucket {int(slab['bucket'])}, {'purging, ' if slab['purging'] else ''}"
           f"{'in the purge queue, ' if slab['purge_queued'] else ''}{int(slab['dirty_blocks'])} dirty")
    offset = address - int(slab["first_block"])
    if not 0 <= offset < blocks * size:
        yield f"  {address:#x} is not in a block"
        return
    index = offset // size
    state = "free" if bit(local, index) else "freed by another thread" if bit(remote, index) else \
        holder_of(address - offset % size, int(slab["class_number"])) or "in use, or retired"
    yield f"  {address:#x} is byte {offset % size} of block {index}: {state}"


def sheet_lines(address, span, start):
    sheet = span.cast(gdb.lookup_type("struct ebbi_sheet").pointer())
    region = int(sheet["region"])
    label = sheet["label"]
    yield (f"sheet {int(sheet):#x}: {int(span['granules']) << GRANULE_SHIFT} bytes at {start:#x}, "
           + (f"of region {region:#x}" if region else "an orphan: its region has been closed"))
    yield f"  label {label['name'].string()!r}" if int(label) else "  no label"
    cursor = int(sheet["cursor"])
    yield (f"  live {int(sheet['live'])} + shared {int(sheet['shared'])}, {int(sheet['starts'])} starts, "
           f"{int(sheet['retired'])} retired" + (" (without what the region has taken lately: its cursor is here)" if cursor else ""))
    if not start <= address < start + (int(span["granules"]) << GRANULE_SHIFT):
        return
    block = address // UNIT * UNIT
    while block > start and not sheet_bit(block, 0):
        block -= UNIT
    fresh = cursor and int(sheet["cursor"]["next"]) <= block < int(sheet["cursor"]["limit"])
    state = "never handed out" if fresh else "freed" if sheet_bit(block, 1) or sheet_bit(block, 2) else "in use, or retired"
    yield f"  {address:#x} is byte {address - block} of the block at {block:#x}: {state}"


def sheet_bit(address, which):
    """Of the bitmaps start, gone and remote of a sheet's granule."""
    chunk = address >> CHUNK_SHIFT << CHUNK_SHIFT
    rooms = chunk + int(typed(chunk, "ebbi_chunk")["granules"]) * HEADER
    words = rooms + (address - chunk >> GRANULE_SHIFT) * 3 * ROOM_WORDS * 8 + which * ROOM_WORDS * 8
    word = gdb.Value(words + (address >> 10 & 63) * 8).cast(gdb.lookup_type("unsigned long").pointer())
    return int(word.dereference()) >> (address // UNIT % 64) & 1


class Block(Command):
    """ebb block P: what a pointer is."""

    def lines(self, address):
        tag = tag_of(address)
        span, start = span_of(address)
        state = STATES[int(span["state"])]
        yield f"{address:#x}: tag {tag}, in a span of kind {state}"
        if state == "slab":
            yield from slab_lines(address, span, start)
        elif state == "sheet":
            yield from sheet_lines(address, span, start)
        elif state == "large":
            large = span.cast(gdb.lookup_type("struct ebbi_large").pointer())
            region = int(large["note"]["region"])
            yield (f"large object: {int(large['bytes'])} bytes at {start:#x}; {address:#x} is byte {address - start}: in use"
                   + (f", in region {region:#x}" if region else "") + (", or retired" if int(large["note"]["stamp"]) else ""))


class OfKind(Command):
    """The header of a slab or a sheet by any pointer into it."""

    def __init__(self, kind, lines_of):
        super().__init__(kind)
        self.kind, self.lines_of = kind, lines_of

    def lines(self, address):
        span, start = span_of(address)
        if STATES[int(span["state"])] != self.kind:
            raise gdb.GdbError(f"{address:#x} lies in a span of kind {STATES[int(span['state'])]}")
        yield from self.lines_of(address, span, start)


class Heap(Command):
    """ebb heap: of the selected thread, or at an address."""

    needs_address = False

    def lines(self, address):
        if address is None:
            address = int(symbol("ebb_self"))
            for name in ("none", "gone"):
                if address == int(symbol(f"&ebbi_heap_{name}").cast(gdb.lookup_type("unsigned long"))):
                    yield f"this thread has no heap: {name}"
                    return
        heap = next((heap for heap in heaps() if int(heap.address) == address), None)
        if heap is None:
            raise gdb.GdbError(f"there is no heap at {address:#x}: `ebb owners` lists them")
        source = int(symbol("ebbi_source"))
        yield (f"heap {address:#x}: lane {int(heap['lane'])}, inside {int(heap['inside'])}, "
               f"parked {int(heap['parked'])}, {int(heap['events'])} refills and flushes"
               + ("" if source == address else f"; the thread's source is {source:#x}"))
        yield (f"  outbox {int(heap['outbox_count'])}, limbo {int(heap['limbo']['blocks'])} blocks, "
               f"{int(heap['limbo']['bytes'])} bytes")
        classes, bin_class = symbol("ebbi_classes"), symbol("ebbi_bin_class")
        for number_of, magazine in enumerate_array(heap["magazines"]):
            if int(magazine["slots"]) != 0:
                blocks = magazine_blocks(heap, number_of)
                in_class = int(bin_class[int(magazine["bin"]) % 256])
                yield (f"  {int(classes[in_class]['size']):6} bytes: {len(blocks):4} of {int(magazine['slots']) - 1} blocks"
                       + (f", newest {blocks[-1]:#x}" if blocks else ""))
        yield from owner_lines(heap["own"].address, "its own slabs")


def enumerate_array(array):
    low, high = array.type.range()
    return ((i, array[i]) for i in range(low, high + 1))


def owner_lines(owner, name):
    holder = int(owner["lock"]["word"])
    yield (f"owner {int(owner):#x}, {name}: {int(owner['slab_count'])} slabs, {int(owner['held_bytes'])} bytes held, "
           f"{int(owner['dirty_bytes'])} dirty; lock " + ("free" if holder == 0 else
           f"held by the thread whose &ebb_self is {holder & ~1:#x}{', others wait' if holder & 1 else ''}"))


class Owners(Command):
    """ebb owners: depots and heaps."""

    needs_address = False

    def lines(self, _):
        depots = symbol("all_depots")
        for index in range(int(symbol("depot_count"))):
            yield from owner_lines(depots[index].address, f"depot {index}")
        for heap in heaps():
            kind = "a domain's seat" if int(heap["seat"]["domain"]) else "a thread's" if heap["attached"] else "abandoned"
            yield from owner_lines(heap["own"].address, f"of heap {int(heap.address):#x}, {kind}")


Prefix()
Block("block")
OfKind("slab", slab_lines)
OfKind("sheet", sheet_lines)
Heap("heap")
Owners("owners")
