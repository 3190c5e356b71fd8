#include "plain.h"

#include <string.h>

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

#define LONGEST_NAME 200

static bool is_path(const char *value)
{
	size_t size = strlen(value);

	return value[0] == '/' && value[size - 1] != '/';
}

static bool is_name(const char *value)
{
	size_t size = strlen(value);

	return size > 0 && size <= LONGEST_NAME && value[0] != '.' && value[0] != '-' &&
	       strspn(value, LOWER UPPER DIGITS "._-+@=,") == size;
}

static bool is_mount(const char *item, size_t size)
{
	const char *colon = memchr(item, ':', size);

	if (item[0] != '/' && item[0] != '.')
		return false;
	return colon == NULL || colon[1] == '/' || colon[1] == '.';
}

static bool is_variable(const char *item, size_t size)
{
	return size > 0 && strspn(item, LOWER UPPER DIGITS "_") == size &&
	       strspn(item, DIGITS) == 0;
}

static bool is_list(const char *value, bool (*is_item)(const char *item, size_t size))
{
	for (const char *item = value;; ++item) {
		size_t size = strcspn(item, ",");

		if (!is_item(item, size))
			return false;
		item += size;
		if (*item == '\0')
			return true;
	}
}

bool is_plain(enum plain form, const char *value)
{
	switch (form) {
	case PLAIN_SWITCH:
		return true;
	case PLAIN_PATH:
		return is_path(value);
	case PLAIN_NAME:
		return is_name(value);
	case PLAIN_MOUNTS:
		return is_list(value, is_mount);
	case PLAIN_VARIABLES:
		return is_list(value, is_variable);
	case PLAIN_NONE:
		break;
	}
	return false;
}
