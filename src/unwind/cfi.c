// SPDX-License-Identifier: MIT OR Apache-2.0
// Layer unwind: call frame information (DWARF 5, 6.4.2; Linux Standard Base Core 5.0, 10.6), of three registers.
//
// What compilers write is trusted to be well-formed, but not to be of a form that is understood: what is not gives
// EBBI_RULE_NONE.
#include <string.h>

#include "os/os.h"
#include "unwind/unwind.h"

#define REMEMBERED 8

struct reader {
    const unsigned char *at, *end;
    bool bad; // something that is not understood, or past the end
};

// ---- numbers --------------------------------------------------------------------------------------------

static uint64_t take_bytes(struct reader *in, size_t bytes)
{
    uint64_t value = 0;
    if ((size_t)(in->end - in->at) < bytes) {
        in->bad = true;
        in->at = in->end;
        return 0;
    }
    memcpy(&value, in->at, bytes); // both kinds of machine are little-endian
    in->at += bytes;
    return value;
}

static int64_t widen(uint64_t value, size_t bytes)
{
    unsigned shift = (unsigned)(64 - 8 * bytes);
    return (int64_t)(value << shift) >> shift;
}

static uint64_t take_leb(struct reader *in, bool is_signed)
{
    uint64_t value = 0;
    unsigned shift = 0;
    unsigned char byte = 0x80;
    while ((byte & 0x80) != 0 && !in->bad) {
        byte = (unsigned char)take_bytes(in, 1);
        value |= shift < 64 ? (uint64_t)(byte & 0x7F) << shift : 0;
        shift += 7;
    }
    if (is_signed && shift < 64 && (byte & 0x40) != 0) {
        value |= ~(uint64_t)0 << shift;
    }
    return value;
}

static uint64_t take_unsigned(struct reader *in) { return take_leb(in, false); }
static int64_t take_signed(struct reader *in) { return (int64_t)take_leb(in, true); }

// DW_EH_PE_*: low half the format, high half what it is relative to.
enum { PTR = 0, ULEB = 1, U2 = 2, U4 = 3, U8 = 4, SLEB = 9, S2 = 10, S4 = 11, S8 = 12 };
enum { TO_PLACE = 0x10, TO_TABLE = 0x30, OMITTED = 0xFF };

static uint64_t take_format(struct reader *in, unsigned format)
{
    switch (format) {
    case ULEB:
        return take_unsigned(in);
    case SLEB:
        return (uint64_t)take_signed(in);
    case U2:
        return take_bytes(in, 2);
    case U4:
        return take_bytes(in, 4);
    case S2:
        return (uint64_t)widen(take_bytes(in, 2), 2);
    case S4:
        return (uint64_t)widen(take_bytes(in, 4), 4);
    case PTR:
    case U8:
    case S8:
        return take_bytes(in, 8);
    default:
        in->bad = true;
        return 0;
    }
}

static uintptr_t take_pointer(struct reader *in, unsigned encoding, const unsigned char *table)
{
    uintptr_t place = (uintptr_t)in->at;
    uint64_t value = take_format(in, encoding & 0xF);
    switch (encoding & 0xF0) {
    case 0:
        return value;
    case TO_PLACE:
        return place + value;
    case TO_TABLE:
        return (uintptr_t)table + value;
    default:
        in->bad = true;
        return 0;
    }
}

// ---- entries --------------------------------------------------------------------------------------------

// A length, then so many bytes.
static struct reader open_entry(const unsigned char *entry)
{
    struct reader in = {entry, entry + 4, false};
    uint64_t length = take_bytes(&in, 4);
    if (length == 0xFFFFFFFF) {
        in.end += 8;
        length = take_bytes(&in, 8);
    }
    in.end = in.at + length;
    in.bad = length == 0;
    return in;
}

struct common {
    struct reader instructions;
    uint64_t code_step;
    int64_t data_step;
    uint64_t ra_column;
    unsigned encoding; // of places in the code
    bool has_lengths, is_signal;
};

// One that begins with 'z' gives its length first, so that what is not understood can be passed over.
static void take_augmentation(struct common *common, struct reader *in, const char *letters)
{
    common->has_lengths = *letters == 'z';
    if (!common->has_lengths) {
        in->bad |= *letters != '\0';
        return;
    }
    uint64_t length = take_unsigned(in);
    const unsigned char *after = in->at + ebbi_min(length, (uint64_t)(in->end - in->at));
    for (letters++; *letters != '\0' && !in->bad; letters++) {
        unsigned encoding;
        switch (*letters) {
        case 'R':
            common->encoding = (unsigned)take_bytes(in, 1);
            break;
        case 'L':
            (void)take_bytes(in, 1);
            break;
        case 'P':
            encoding = (unsigned)take_bytes(in, 1);
            (void)take_format(in, encoding & 0xF);
            break;
        case 'S':
            common->is_signal = true;
            break;
        case 'B': // return addresses are signed with the other key
            break;
        default:
            in->bad = true;
        }
    }
    in->at = after;
}

static bool take_common(struct common *common, const unsigned char *entry)
{
    struct reader in = open_entry(entry);
    *common = (struct common){.encoding = PTR};
    in.bad |= take_bytes(&in, 4) != 0;
    unsigned version = (unsigned)take_bytes(&in, 1);
    const char *letters = (const char *)in.at;
    while (take_bytes(&in, 1) != 0) {
    }
    common->code_step = take_unsigned(&in);
    common->data_step = take_signed(&in);
    common->ra_column = version == 1 ? take_bytes(&in, 1) : take_unsigned(&in);
    in.bad |= version != 1 && version != 3;
    take_augmentation(common, &in, letters);
    common->instructions = in;
    return !in.bad;
}

// ---- instructions ---------------------------------------------------------------------------------------

enum saved { SAME, AT_CFA, AT_FP, UNDEFINED, OTHERWISE };

struct place {
    enum saved saved;
    int64_t offset;
};

struct row {
    enum ebbi_rule_kind cfa; // SP, FP, FP_LOAD, or NONE
    int64_t offset;
    struct place fp, ra;
};

struct machine {
    const struct common *common;
    struct row row, first, remembered[REMEMBERED];
    size_t depth;
};

static enum ebbi_rule_kind kind_of(uint64_t column)
{
    return column == EBBI_OS_SP_COLUMN   ? EBBI_RULE_SP
           : column == EBBI_OS_FP_COLUMN ? EBBI_RULE_FP
                                         : EBBI_RULE_NONE;
}

static void set_place(struct machine *machine, uint64_t column, enum saved saved, int64_t offset)
{
    if (column == EBBI_OS_FP_COLUMN) {
        machine->row.fp = (struct place){saved, offset};
    } else if (column == machine->common->ra_column) {
        machine->row.ra = (struct place){saved, offset};
    }
}

static void restore_first(struct machine *machine, uint64_t column)
{
    if (column == EBBI_OS_FP_COLUMN) {
        machine->row.fp = machine->first.fp;
    } else if (column == machine->common->ra_column) {
        machine->row.ra = machine->first.ra;
    }
}

// DW_OP_breg<frame pointer> offset, and perhaps DW_OP_deref: functions that align their stack. False: another.
static bool take_expression(struct reader *in, int64_t *offset, bool *loads)
{
    uint64_t length = take_unsigned(in);
    struct reader inner = {in->at, in->at + ebbi_min(length, (uint64_t)(in->end - in->at)), false};
    in->at = inner.end;
    bool by_fp = take_bytes(&inner, 1) == 0x70 + EBBI_OS_FP_COLUMN;
    *offset = take_signed(&inner);
    *loads = inner.at != inner.end && take_bytes(&inner, 1) == 0x06;
    return by_fp && !inner.bad && inner.at == inner.end;
}

static void set_cfa_by_expression(struct machine *machine, struct reader *in)
{
    int64_t offset;
    bool loads;
    bool known = take_expression(in, &offset, &loads);
    machine->row.cfa = !known ? EBBI_RULE_NONE : loads ? EBBI_RULE_FP_LOAD : EBBI_RULE_FP;
    machine->row.offset = offset;
}

static void set_by_expression(struct machine *machine, uint64_t column, struct reader *in)
{
    int64_t offset;
    bool loads;
    bool known = take_expression(in, &offset, &loads);
    set_place(machine, column, known && !loads ? AT_FP : OTHERWISE, offset);
}

static void define_cfa(struct machine *machine, uint64_t column, int64_t offset)
{
    machine->row.cfa = kind_of(column);
    machine->row.offset = offset;
}

static void pass_over_expression(struct reader *in)
{
    uint64_t length = take_unsigned(in);
    in->at += ebbi_min(length, (uint64_t)(in->end - in->at));
}

// Where the caller's value of one register is. False: the code is another's.
static bool of_register(struct machine *machine, struct reader *in, unsigned code)
{
    int64_t step = machine->common->data_step;
    if (code < 0x05 || (code > 0x09 && code < 0x10) || code == 0x12 || code == 0x13 ||
        code > 0x16) {
        return false;
    }
    uint64_t column = take_unsigned(in);
    switch (code) {
    case 0x05: // offset_extended
        set_place(machine, column, AT_CFA, (int64_t)take_unsigned(in) * step);
        break;
    case 0x06: // restore_extended
        restore_first(machine, column);
        break;
    case 0x07: // undefined
        set_place(machine, column, UNDEFINED, 0);
        break;
    case 0x08: // same_value
        set_place(machine, column, SAME, 0);
        break;
    case 0x10: // expression
        set_by_expression(machine, column, in);
        break;
    case 0x11: // offset_extended_sf
        set_place(machine, column, AT_CFA, take_signed(in) * step);
        break;
    case 0x16: // val_expression
        pass_over_expression(in);
        set_place(machine, column, OTHERWISE, 0);
        break;
    default: // register, val_offset, val_offset_sf
        (void)take_unsigned(in);
        set_place(machine, column, OTHERWISE, 0);
    }
    return true;
}

// What the CFA is. False: as above.
static bool of_cfa(struct machine *machine, struct reader *in, unsigned code)
{
    uint64_t column;
    switch (code) {
    case 0x0C: // def_cfa
        column = take_unsigned(in);
        define_cfa(machine, column, (int64_t)take_unsigned(in));
        return true;
    case 0x0D: // def_cfa_register
        define_cfa(machine, take_unsigned(in), machine->row.offset);
        return true;
    case 0x0E: // def_cfa_offset
        machine->row.offset = (int64_t)take_unsigned(in);
        return true;
    case 0x0F: // def_cfa_expression
        set_cfa_by_expression(machine, in);
        return true;
    case 0x12: // def_cfa_sf
        column = take_unsigned(in);
        define_cfa(machine, column, take_signed(in) * machine->common->data_step);
        return true;
    case 0x13: // def_cfa_offset_sf
        machine->row.offset = take_signed(in) * machine->common->data_step;
        return true;
    default:
        return false;
    }
}

static void other(struct machine *machine, struct reader *in, unsigned code)
{
    switch (code) {
    case 0x00: // nop
        break;
    case 0x0A: // remember_state
        in->bad |= machine->depth == REMEMBERED;
        machine->remembered[machine->depth % REMEMBERED] = machine->row;
        machine->depth++;
        break;
    case 0x0B: // restore_state
        in->bad |= machine->depth == 0;
        machine->depth -= !in->bad;
        machine->row = machine->remembered[machine->depth % REMEMBERED];
        break;
    case 0x2D: // AArch64's negate_ra_state: signed return addresses, see ebbi_os_code_address
        break;
    case 0x2E: // GNU_args_size
        (void)take_unsigned(in);
        break;
    default:
        in->bad = true;
    }
}

// How far the next instruction, if it moves on in the code, does so; else 0, and it is done.
static uint64_t instruction(struct machine *machine, struct reader *in)
{
    unsigned code = (unsigned)take_bytes(in, 1);
    uint64_t low = code & 0x3F;
    switch (code & 0xC0) {
    case 0x40:
        return low * machine->common->code_step;
    case 0x80:
        set_place(machine, low, AT_CFA, (int64_t)take_unsigned(in) * machine->common->data_step);
        return 0;
    case 0xC0:
        restore_first(machine, low);
        return 0;
    default:
        break;
    }
    if (code >= 0x02 && code <= 0x04) { // advance_loc1, 2, 4
        return take_bytes(in, (size_t)1 << (code - 2)) * machine->common->code_step;
    }
    if (!of_register(machine, in, code) && !of_cfa(machine, in, code)) {
        other(machine, in, code);
    }
    return 0;
}

// True: understood, up to `distance` into the code.
static bool run_up_to(struct machine *machine, struct reader in, uint64_t distance)
{
    uint64_t reached = 0;
    while (in.at < in.end && !in.bad && reached <= distance) {
        struct row before = machine->row;
        uint64_t further = instruction(machine, &in);
        reached += further;
        if (further != 0 && reached > distance) {
            machine->row = before;
        }
    }
    return !in.bad;
}

// ---- the rule --------------------------------------------------------------------------------------------

static struct ebbi_rule rule_of(const struct row *row)
{
    struct ebbi_rule rule = {.kind = row->cfa, .cfa = row->offset};
    if (row->ra.saved == UNDEFINED) {
        return (struct ebbi_rule){.kind = EBBI_RULE_END};
    }
    if (row->cfa == EBBI_RULE_NONE || row->ra.saved == AT_FP || row->ra.saved == OTHERWISE ||
        row->fp.saved == OTHERWISE) {
        return (struct ebbi_rule){.kind = EBBI_RULE_NONE};
    }
    rule.has_ra = row->ra.saved == AT_CFA;
    rule.ra = row->ra.offset;
    rule.fp_kind = row->fp.saved == AT_CFA  ? EBBI_FP_AT_CFA
                   : row->fp.saved == AT_FP ? EBBI_FP_AT_FP
                                            : EBBI_FP_SAME;
    rule.fp = row->fp.offset;
    return rule;
}

static struct ebbi_rule rule_by_entry(const unsigned char *entry, uintptr_t pc)
{
    const struct ebbi_rule none = {.kind = EBBI_RULE_NONE};
    struct common common;
    struct reader in = open_entry(entry);
    const unsigned char *field = in.at;
    uint64_t back = take_bytes(&in, 4);
    if (in.bad || back == 0 || !take_common(&common, field - back)) {
        return none;
    }
    uintptr_t start = take_pointer(&in, common.encoding, NULL);
    uint64_t bytes = take_format(&in, common.encoding & 0xF);
    if (in.bad || pc - start >= bytes) {
        return none;
    }
    if (common.is_signal) {
        return (struct ebbi_rule){.kind = EBBI_RULE_SIGNAL};
    }
    if (common.has_lengths) {
        pass_over_expression(&in);
    }
    struct machine machine = {.common = &common};
    if (!run_up_to(&machine, common.instructions, 0)) {
        return none;
    }
    machine.first = machine.row;
    return run_up_to(&machine, in, pc - start) ? rule_of(&machine.row) : none;
}

// The last entry of the table that begins at the place or before.
static const unsigned char *find_entry_of(const unsigned char *table, const unsigned char *rows,
                                          size_t count, uintptr_t pc)
{
    size_t low = 0;
    size_t high = count;
    int32_t pair[2];
    while (low < high) {
        size_t middle = (low + high) / 2;
        memcpy(pair, rows + middle * sizeof pair, sizeof pair);
        if ((uintptr_t)table + (uintptr_t)(intptr_t)pair[0] <= pc) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return NULL;
    }
    memcpy(pair, rows + (low - 1) * sizeof pair, sizeof pair);
    return table + pair[1];
}

struct ebbi_rule ebbi_cfi_rule(const unsigned char *table, uintptr_t pc)
{
    const struct ebbi_rule none = {.kind = EBBI_RULE_NONE};
    // Version, the encodings of the next two numbers and of the pairs (place, entry), as every linker writes them.
    if (table == NULL || table[0] != 1 || table[2] == OMITTED || table[3] != (TO_TABLE | S4)) {
        return none;
    }
    struct reader in = {table + 4, table + 4 + 2 * sizeof(uint64_t), false};
    (void)take_pointer(&in, table[1], table);
    size_t count = take_pointer(&in, table[2], table);
    const unsigned char *entry = in.bad ? NULL : find_entry_of(table, in.at, count, pc);
    return entry != NULL ? rule_by_entry(entry, pc) : none;
}
