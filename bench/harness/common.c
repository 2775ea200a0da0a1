// SPDX-License-Identifier: MIT OR Apache-2.0
// See common.h. Reads /proc with plain system calls and formats into the stack
// or static storage, because stdio would allocate.
#include "common.h"

#include "histogram.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_CHECK = 1,
    EXIT_USAGE = 2,
    STATUS_BYTES = 8192,
    OUTPUT_BYTES = 32768,
    SERIES_BYTES = BENCH_SERIES_MAX * 24,
};

// The longest "[index, count], " has 30.
enum { HISTOGRAM_BYTES = HISTOGRAM_COUNTS * 30 };

static void write_all(int file, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t written = write(file, text, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            _exit(EXIT_USAGE);
        text += written;
        length -= (size_t)written;
    }
}

void bench_fail(const char *format, ...)
{
    char line[512];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line - 1, format, values);
    va_end(values);
    size_t used = length < 0 ? 0 : (size_t)length;
    if (used > sizeof line - 2)
        used = sizeof line - 2;
    line[used] = '\n';
    write_all(STDERR_FILENO, "bench: ", 7);
    write_all(STDERR_FILENO, line, used + 1);
    _exit(EXIT_USAGE);
}

// --- arguments ---------------------------------------------------------------

static uint64_t plant_percent;

// Taken by every program, after its own.
static const struct bench_option common_options[] = {
    {"plant-percent", &plant_percent, 0, 100, "slow-down to plant, in percent of CPU time"},
};

enum { COMMON_COUNT = sizeof common_options / sizeof common_options[0] };

static size_t count_options(const struct bench_program *program)
{
    return program->option_count + COMMON_COUNT;
}

static const struct bench_option *option_at(const struct bench_program *program, size_t index)
{
    if (index < program->option_count)
        return &program->options[index];
    return &common_options[index - program->option_count];
}

static void print_usage(const struct bench_program *program)
{
    char line[256];
    int length = snprintf(line, sizeof line, "%s: %s\n", program->name, program->purpose);
    write_all(STDOUT_FILENO, line, (size_t)length);
    for (size_t i = 0; i < count_options(program); i++) {
        const struct bench_option *option = option_at(program, i);
        length = snprintf(line, sizeof line, "  --%-18s %s (default %" PRIu64 ")\n", option->name,
                          option->help, *option->value);
        write_all(STDOUT_FILENO, line, (size_t)length);
    }
}

static const struct bench_option *find_option(const struct bench_program *program,
                                              const char *argument)
{
    if (strncmp(argument, "--", 2) != 0)
        return NULL;
    for (size_t i = 0; i < count_options(program); i++)
        if (strcmp(argument + 2, option_at(program, i)->name) == 0)
            return option_at(program, i);
    return NULL;
}

static void set_option(const struct bench_option *option, const char *text)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
    if (!is_number || value < option->min || value > option->max)
        bench_fail("--%s %s: want a whole number from %" PRIu64 " to %" PRIu64, option->name, text,
                   option->min, option->max);
    *option->value = value;
}

static void parse(const struct bench_program *program, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (strcmp(argv[i], "--help") == 0) {
            print_usage(program);
            exit(0);
        }
        const struct bench_option *option = find_option(program, argv[i]);
        if (option == NULL)
            bench_fail("%s: unknown argument %s; try --help", program->name, argv[i]);
        if (i + 1 == argc)
            bench_fail("%s: %s wants a value", program->name, argv[i]);
        set_option(option, argv[i + 1]);
    }
}

// --- load check --------------------------------------------------------------

static const char *allocator_path(void)
{
    Dl_info info;
    void *entry = dlsym(RTLD_DEFAULT, "malloc");
    if (entry == NULL || dladdr(entry, &info) == 0 || info.dli_fname == NULL)
        bench_fail("cannot tell which object malloc comes from");
    return info.dli_fname;
}

static void check_allocator(void)
{
    const char *expected = getenv("LAB_EXPECT");
    const char *loaded = allocator_path();
    if (expected != NULL && strstr(loaded, expected) == NULL)
        bench_fail("malloc comes from %s, expected %s", loaded, expected);
}

bool bench_is_floor(void) { return strstr(allocator_path(), "libebb_floor") != NULL; }

void bench_open(const struct bench_program *program, int argc, char **argv)
{
    parse(program, argc, argv);
    check_allocator();
}

// --- clocks and resident memory ----------------------------------------------

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct bench_clock read_clock(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (struct bench_clock){
        .wall_s = seconds_of(CLOCK_MONOTONIC),
        .cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID),
        .system_s = (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec * 1e-6,
        .minor_faults = (uint64_t)usage.ru_minflt,
        .major_faults = (uint64_t)usage.ru_majflt,
    };
}

void bench_clock_start(struct bench_clock *clock) { *clock = read_clock(); }

// The clock is read in the loop: each read is CPU time too, so no guess of speed is needed.
static void burn_planted(double cpu_start_s)
{
    double cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_start_s;
    double end_s = cpu_start_s + cpu_s * (1.0 + (double)plant_percent / 100.0);
    while (seconds_of(CLOCK_PROCESS_CPUTIME_ID) < end_s) {
    }
}

void bench_clock_stop(struct bench_clock *clock)
{
    if (plant_percent > 0)
        burn_planted(clock->cpu_s);
    struct bench_clock now = read_clock();
    clock->wall_s = now.wall_s - clock->wall_s;
    clock->cpu_s = now.cpu_s - clock->cpu_s;
    clock->system_s = now.system_s - clock->system_s;
    clock->minor_faults = now.minor_faults - clock->minor_faults;
    clock->major_faults = now.major_faults - clock->major_faults;
}

static uint64_t status_kb(const char *key)
{
    char text[STATUS_BYTES];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (length <= 0)
        bench_fail("cannot read /proc/self/status: %s", strerror(errno));
    close(file);
    text[length] = '\0';
    const char *line = strstr(text, key);
    if (line == NULL)
        bench_fail("/proc/self/status has no %s", key);
    return strtoull(line + strlen(key), NULL, 10);
}

uint64_t bench_peak_rss_kb(void) { return status_kb("VmHWM:"); }

uint64_t bench_rss_kb(void) { return status_kb("VmRSS:"); }

void bench_sleep_ms(uint64_t delay_ms)
{
    struct timespec left = {
        .tv_sec = (time_t)(delay_ms / 1000),
        .tv_nsec = (long)(delay_ms % 1000) * 1000000L,
    };
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void *bench_map(size_t size_bytes)
{
    void *memory =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bench_fail("cannot map %zu bytes: %s", size_bytes, strerror(errno));
    return memory;
}

void bench_unmap(void *memory, size_t size_bytes)
{
    if (munmap(memory, size_bytes) != 0)
        bench_fail("cannot unmap %zu bytes: %s", size_bytes, strerror(errno));
}

// --- report ------------------------------------------------------------------

void bench_figure(struct bench_result *result, const char *name, double value)
{
    if (result->figure_count == BENCH_FIELDS_MAX)
        bench_fail("no room for figure %s", name);
    result->figures[result->figure_count++] = (struct bench_field){name, value};
}

void bench_verify(struct bench_result *result, const char *name, bool holds)
{
    if (result->check_count == BENCH_FIELDS_MAX)
        bench_fail("no room for check %s", name);
    result->checks[result->check_count++] = (struct bench_check){name, holds};
}

void bench_histogram(struct bench_result *result, const char *name,
                     const struct histogram *histogram)
{
    if (result->histogram_count == BENCH_HISTOGRAMS_MAX)
        bench_fail("no room for histogram %s", name);
    result->histograms[result->histogram_count++] = (struct bench_named_histogram){name, histogram};
}

void bench_figures_of(struct bench_result *result, const struct bench_clock *clock, uint64_t ops)
{
    double millions = (double)ops * 1e-6;
    bench_figure(result, "ops", (double)ops);
    bench_figure(result, "wall_s", clock->wall_s);
    bench_figure(result, "cpu_s", clock->cpu_s);
    bench_figure(result, "user_s", clock->cpu_s - clock->system_s);
    bench_figure(result, "system_s", clock->system_s);
    bench_figure(result, "wall_ns_per_op", clock->wall_s * 1e3 / millions);
    bench_figure(result, "cpu_ns_per_op", clock->cpu_s * 1e3 / millions);
    bench_figure(result, "mops_per_wall_s", millions / clock->wall_s);
    bench_figure(result, "mops_per_cpu_s", millions / clock->cpu_s);
    bench_figure(result, "minor_faults", (double)clock->minor_faults);
    bench_figure(result, "major_faults", (double)clock->major_faults);
    bench_figure(result, "peak_rss_kb", (double)bench_peak_rss_kb());
}

static char *output;
static size_t output_size;
static size_t output_used;

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void put(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int length = vsnprintf(output + output_used, output_size - output_used, format, values);
    va_end(values);
    if (length < 0 || (size_t)length >= output_size - output_used)
        bench_fail("report does not fit");
    output_used += (size_t)length;
}

// A path may hold any byte but NUL; JSON wants quotes, backslashes and controls escaped.
static void put_string(const char *text)
{
    put("\"");
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\')
            put("\\%c", byte);
        else if (byte < 0x20)
            put("\\u%04x", byte);
        else
            put("%c", byte);
    }
    put("\"");
}

static const char *separator(size_t index) { return index == 0 ? "" : ", "; }

static void put_parameters(const struct bench_program *program)
{
    put(", \"parameters\": {");
    for (size_t i = 0; i < count_options(program); i++) {
        const struct bench_option *option = option_at(program, i);
        put("%s\"%s\": %" PRIu64, separator(i), option->name, *option->value);
    }
    put("}");
}

static void put_figures(const struct bench_result *result)
{
    put(", \"figures\": {");
    for (size_t i = 0; i < result->figure_count; i++)
        put("%s\"%s\": %.9g", separator(i), result->figures[i].name, result->figures[i].value);
    put("}");
}

static void put_values(const char *name, const double *values, size_t count)
{
    put_string(name);
    put(": [");
    for (size_t i = 0; i < count; i++)
        put("%s%.3f", separator(i), values[i]);
    put("]");
}

static void put_series(const struct bench_result *result)
{
    put(", \"series_step_s\": %g, \"series\": {", result->series_step_s);
    if (result->series_count > 0) {
        put_values("rss_mb", result->series, result->series_count);
        for (size_t i = 0; i < result->more_series_count; i++) {
            put(", ");
            put_values(result->more_series[i].name, result->more_series[i].values,
                       result->series_count);
        }
    }
    put("}");
}

static void put_counts(const struct histogram *histogram)
{
    const char *between = "";
    for (size_t i = 0; i < HISTOGRAM_COUNTS; i++) {
        if (histogram->counts[i] == 0)
            continue;
        put("%s[%zu, %" PRIu64 "]", between, i, histogram->counts[i]);
        between = ", ";
    }
}

static void put_histograms(const struct bench_result *result)
{
    put(", \"histograms\": {");
    for (size_t i = 0; i < result->histogram_count; i++) {
        put("%s\"%s\": {\"lowest\": %d, \"highest\": %" PRIu64
            ", \"significant_figures\": %d, \"counts\": [",
            separator(i), result->histograms[i].name, HISTOGRAM_LOWEST_NS, HISTOGRAM_HIGHEST_NS,
            HISTOGRAM_FIGURES);
        put_counts(result->histograms[i].histogram);
        put("]}");
    }
    put("}");
}

static bool put_checks(const struct bench_result *result)
{
    bool all_hold = true;
    put(", \"verified\": {");
    for (size_t i = 0; i < result->check_count; i++) {
        const struct bench_check *check = &result->checks[i];
        put("%s\"%s\": %s", separator(i), check->name, check->holds ? "true" : "false");
        all_hold = all_hold && check->holds;
    }
    put("}");
    return all_hold;
}

int bench_report(const struct bench_program *program, const struct bench_result *result)
{
    output_size = OUTPUT_BYTES + result->histogram_count * HISTOGRAM_BYTES +
                  result->more_series_count * SERIES_BYTES;
    output = bench_map(output_size);
    put("{\"schema\": %d, \"workload\": \"%s\", \"allocator\": ", BENCH_SCHEMA, program->name);
    put_string(allocator_path());
    put_parameters(program);
    put_figures(result);
    put_series(result);
    put_histograms(result);
    bool all_hold = put_checks(result);
    put("}\n");
    write_all(STDOUT_FILENO, output, output_used);
    return all_hold ? 0 : EXIT_CHECK;
}
