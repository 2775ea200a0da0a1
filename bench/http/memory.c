// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE // RTLD_DEFAULT
#include "memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOMAIN_PREFIX "domain-"
#define LABEL "http requests"

enum way { WAY_MALLOC, WAY_DOMAIN, WAY_REGION, WAY_REGION_RESET };

// Those of <ebbtide/region.h>, as far as they are used; all there, or none is called.
static struct {
    __typeof__(&ebb_region_open) region_open;
    __typeof__(&ebb_region_alloc) region_alloc;
    __typeof__(&ebb_region_reset) region_reset;
    __typeof__(&ebb_region_release) region_release;
    __typeof__(&ebb_domain_open) domain_open;
    __typeof__(&ebb_domain_set_policy) domain_set_policy;
    __typeof__(&ebb_domain_enter) domain_enter;
    __typeof__(&ebb_heap_enter) heap_enter;
    __typeof__(&ebb_leave) leave;
} ebb;

static enum way way;
static struct ebb_domain *domain;
static const struct ebb_region_options region_options = {.label = LABEL};
static _Thread_local struct phase *current;

// ---- choosing -----------------------------------------------------------------------------------

// C has no conversion from an object's address to a function's; POSIX says that the bits are the same.
static bool find(const char *name, void *function, size_t bytes)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(function, &found, bytes);
    return found != NULL;
}

#define FIND(name) find("ebb_" #name, &ebb.name, sizeof ebb.name)

static bool find_ebbtide(void)
{
    return FIND(region_open) && FIND(region_alloc) && FIND(region_reset) && FIND(region_release) &&
           FIND(domain_open) && FIND(domain_set_policy) && FIND(domain_enter) && FIND(heap_enter) &&
           FIND(leave);
}

static bool parse_scopes(const char *text, size_t *scopes)
{
    if (strcmp(text, "never") == 0) {
        *scopes = 0;
        return true;
    }
    char *end = NULL;
    errno = 0;
    *scopes = strtoul(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *scopes > 0;
}

static bool parse(const char *policy, size_t *scopes)
{
    *scopes = 1;
    if (strcmp(policy, "region") == 0) {
        way = WAY_REGION;
    } else if (strcmp(policy, "region-reset") == 0) {
        way = WAY_REGION_RESET;
    } else if (strcmp(policy, "domain") == 0) {
        way = WAY_DOMAIN;
    } else if (strncmp(policy, DOMAIN_PREFIX, strlen(DOMAIN_PREFIX)) == 0) {
        way = WAY_DOMAIN;
        return parse_scopes(policy + strlen(DOMAIN_PREFIX), scopes);
    } else {
        way = WAY_MALLOC;
        return strcmp(policy, "malloc") == 0;
    }
    return true;
}

static int open_domain(size_t scopes)
{
    domain = ebb.domain_open(LABEL);
    enum ebb_domain_policy policy = scopes > 0 ? EBB_DOMAIN_SCOPES : EBB_DOMAIN_NEVER;
    if (domain == NULL || ebb.domain_set_policy(domain, policy, scopes) != 0) {
        fprintf(stderr, "http: cannot open the domain: %s\n", strerror(errno));
        return -1;
    }
    return 0;
}

int memory_choose(const char *policy)
{
    size_t scopes;
    if (!parse(policy, &scopes)) {
        fprintf(stderr,
                "http: --policy wants malloc, domain, domain-N (N from 1), domain-never, "
                "region or region-reset, not '%s'\n",
                policy);
        return -1;
    }
    if (way != WAY_MALLOC && !find_ebbtide()) {
        fprintf(stderr,
                "http: --policy %s wants Ebbtide, which this process does not have: "
                "start it with LD_PRELOAD=libebbtide.so, or with --policy malloc\n",
                policy);
        return -1;
    }
    return way == WAY_DOMAIN ? open_domain(scopes) : 0;
}

bool memory_frees_blocks(void) { return way == WAY_MALLOC || way == WAY_DOMAIN; }

// ---- phases -------------------------------------------------------------------------------------

void phase_open(struct phase *phase) { *phase = (struct phase){.region = NULL}; }

void phase_close(struct phase *phase)
{
    if (phase->region != NULL) {
        ebb.region_release(phase->region);
        phase->region = NULL;
    }
}

int phase_begin(struct phase *phase)
{
    current = phase;
    phase->failed_before = phase->failed;
    if (way == WAY_DOMAIN) {
        phase->before = ebb.domain_enter(domain);
    } else if (way != WAY_MALLOC && phase->region == NULL) {
        phase->region = ebb.region_open(&region_options);
        if (phase->region == NULL) {
            phase->failed++;
            return -1;
        }
    }
    return 0;
}

void phase_end(struct phase *phase)
{
    if (way == WAY_DOMAIN) {
        ebb.leave(phase->before);
    } else if (way == WAY_REGION) {
        phase_close(phase);
    } else if (way == WAY_REGION_RESET) {
        ebb.region_reset(phase->region);
    }
    current = NULL;
}

void *phase_alloc(size_t bytes)
{
    void *p = memory_frees_blocks() ? malloc(bytes) : ebb.region_alloc(current->region, bytes);
    if (p == NULL) {
        current->failed++;
        return NULL;
    }
    current->allocations++;
    current->bytes += bytes;
    return p;
}

void phase_free(void *p)
{
    if (memory_frees_blocks()) {
        free(p);
    }
}

bool phase_has_failed(void) { return current->failed != current->failed_before; }

struct ebb_scope phase_leave_for_heap(void)
{
    return way == WAY_DOMAIN ? ebb.heap_enter() : (struct ebb_scope){.before = 0};
}

void phase_return(struct ebb_scope before)
{
    if (way == WAY_DOMAIN) {
        ebb.leave(before);
    }
}
